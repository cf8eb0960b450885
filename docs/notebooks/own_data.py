# %% [markdown]
# # Your own data in ten minutes
# From a log to lists: read, split, train, look at the curve, choose, recommend. The log here is made up; replace the
# frame by `divmf.Interactions.read("events.csv")`.

# %%
import divmf

data = divmf.datasets.marketplace(users=300, items=150, interactions=6000, seed=0)
data

# %% [markdown]
# Users and items with few interactions tell little: keep the 5-core. The last interaction of each user is the test item,
# the one before it the validation item.

# %%
split = data.k_core(5).leave_one_out(seed=0)
split

# %%
model = divmf.DivMF(k=5, model="ease", seed=0).fit(split)
model.curve

# %%
model.curve.chart("market", k=5)

# %% [markdown]
# The most even lists that lose at most 5% of nDCG on validation, and what they are on the test:

# %%
chosen = model.at(ndcg_drop=0.05)
before, after = (divmf.evaluate(each.lists(seen="train+valid"), split) for each in (model.at(epoch=0), chosen))
for name in ("ndcg", "coverage", "gini"):
    print(f"{name:9} {before[name]!r} -> {after[name]!r}")
assert after["coverage"] > before["coverage"]

# %%
chosen.recommend_frame(split.user_ids[:2], k=5)
