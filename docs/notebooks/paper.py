# %% [markdown]
# # The paper reproduced
# `preset="paper"` is Algorithm 1 of the paper: BPR until validation converges, then the coverage and skewness
# regularizers. Here on a small made-up market with few epochs; `divmf reproduce all --dataset ml-1m -o out` runs the
# paper's experiments on its own data.

# %%
import divmf

split = divmf.datasets.marketplace(users=200, items=100, interactions=4000, seed=0).leave_one_out(seed=0)
model = divmf.DivMF(preset="paper", k=5, dim=16, accuracy_epochs=15, diversity_epochs=15, diversity_rate=0.01, seed=0)
model.fit(split)

# %% [markdown]
# Every diversity epoch is a point: more diverse, less accurate.

# %%
base, last = model.curve.base, model.curve.points[-1]
print(
    f"Gini {base.test['gini']:.3f} -> {last.test['gini']:.3f}, nDCG {base.test['ndcg']:.4f} -> {last.test['ndcg']:.4f}"
)
assert last.test["gini"] < base.test["gini"]

# %%
model.curve.chart("DivMF", k=5)
