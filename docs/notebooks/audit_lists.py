# %% [markdown]
# # Audit another library's model
# The lists stand for those of any library, such as `ids, scores = model.recommend(users, matrix, N=50)` of implicit:
# item numbers and scores, a row a user.

# %%
import numpy as np

import divmf
from divmf.models.ials import ials

split = divmf.datasets.marketplace(users=300, items=150, interactions=6000, seed=0).leave_one_out(seed=0)
scores = np.array(ials(split.train.matrix, dim=8, epochs=5).scores(np.arange(split.n_users)))
scores[split.seen.nonzero()] = -np.inf
ids = np.argsort(-scores, axis=1)[:, :50]

# %%
wide = divmf.TopK.from_arrays(ids, np.take_along_axis(scores, ids, axis=1), split.user_ids, split.item_ids)
wide

# %% [markdown]
# What is shown now, and after reranking with at most a fifth of the slots replaced:

# %%
shown, lists = wide.head(5), divmf.rerank.market(wide, k=5, replace=0.2)
found = {name: divmf.evaluate(each, split, 5) for name, each in (("now", shown), ("market", lists))}
for name, numbers in found.items():
    print(f"{name:7} nDCG {numbers['ndcg']:.4f}  coverage {numbers['coverage']:.3f}  Gini {numbers['gini']:.3f}")
assert found["market"]["gini"] < found["now"]["gini"]

# %% [markdown]
# The difference in accuracy, paired over the users:

# %%
divmf.compare(lists, shown, split, 5)["ndcg"]
