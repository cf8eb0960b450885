# %% [markdown]
# # Providers
# Who sells the items, and what each seller gets. The sellers here are made up.

# %%
import polars as pl

import divmf
from divmf.ranking.groups import GroupExposure, Groups

split = divmf.datasets.marketplace(users=300, items=150, interactions=6000, seed=0).leave_one_out(seed=0)
sellers = [f"seller {number % 12:02}" for number in range(split.n_items)]
catalog = pl.DataFrame({"item_id": split.item_ids, "seller": sellers})
model = divmf.DivMF(k=5, model="ease", seed=0).fit(split)

# %%
exposures = {}
for name, chosen in (("model", model.at(epoch=0)), ("market", model.at(ndcg_drop=0.1))):
    lists = chosen.lists(seen="train+valid")
    exposures[name] = GroupExposure(Groups.read(catalog, "seller", lists.item_ids), lists.counts)
    print(name, exposures[name].measures)

# %% [markdown]
# Rules say what a shop promises; they are checked when they are made.

# %%
rules = divmf.Rules(groups={"seller": {"floor": "2%", "per_list": 2}}, catalog=catalog)
rules.groups["seller"]
