# %% [markdown]
# # The service
# `divmf.Live` answers requests from a run folder and keeps a ledger of what was shown. `divmf serve` puts HTTP around it.

# %%
import tempfile
from pathlib import Path

import divmf

split = divmf.datasets.marketplace(users=300, items=150, interactions=6000, seed=0).leave_one_out(seed=0)
folder = Path(tempfile.mkdtemp())
divmf.DivMF(k=5, model="ease", seed=0).fit(split, run=folder / "run").run.pick(ndcg_drop=0.1)

# %%
with divmf.Live(folder / "run", store=f"sqlite:///{folder}/live.sqlite", horizon=300) as live:
    pages = [live.recommend(user, k=5) for user in split.user_ids[:50]]
    shown = {line.item for page in pages for line in page.items}
    print(f"{len(shown)} of {split.n_items} items in 50 pages")
    history = [str(item) for item in split.item_ids[:3]]
    print([line.item for line in live.recommend(history=history, k=5, dry_run=True).items])
assert len(shown) > 50
