"""The two phases of Algorithm 1, an epoch at a time: first accuracy, then diversity, on the same parameters."""

import math
from typing import Literal, Self

import numpy as np
import torch
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding

from divmf import losses
from divmf.ids import Array
from divmf.interactions import Interactions
from divmf.model import MF
from divmf.sampling import draw_key, slabs, submatrices
from divmf.select import fill_seen, top
from divmf.softmax import softmax_gradient
from divmf.topk import BLOCK_SCORES, blocks
from divmf.unmask import kept_items

# A seen item's score while L_div is computed: no mass, and, being finite, no NaN where a user has seen nearly all.
UNREACHABLE = -1e9

PRESETS: dict[str, dict[str, object]] = {
    "paper": {"accuracy": "bpr", "method": "divmf"},
    "release": {
        "accuracy": "bpr",
        "method": "divmf",
        "k": 10,
        "mask_seen": False,
        "blocks": "release",
        "carry_adam": True,
    },
}


class TrainingDiverged(RuntimeError):
    """The loss is not a number any more; the points before are kept."""


STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)  # a misspelt setting is an error, not a default


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrainConfig:
    """Every setting of a training run; the flags of `divmf train` and the arguments of `DivMF` are made from it."""

    preset: Literal["paper", "release"] | None = Field(
        default=None,
        description="settings of the paper, or of its authors' released code; what you set yourself goes first",
    )
    k: int = Field(default=5, ge=1, description="length of a recommendation list")
    dim: int = Field(default=32, ge=1, le=4096, description="length of a user's and an item's vector")
    accuracy: Literal["bpr", "softmax", "mse"] = Field(
        default="softmax", description="loss of the accuracy phase; bpr is the paper's"
    )
    method: Literal["divmf", "prices"] = Field(
        default="prices", description="what makes the curve: the paper's diversity phase, or exposure prices"
    )
    negatives: int = Field(default=4, ge=1, le=1000, description="items not met that are drawn for each item met")
    batch: int = Field(default=4096, ge=1, description="samples (user, item met, item not met) per accuracy step")
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="Adam's step size in the accuracy phase; none: 0.001, for softmax 0.15"
    )
    l2: float | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="L2 regularization λ, added to the gradient; none: 0.0001, for softmax chosen on validation",
    )
    patience: int = Field(
        default=10,
        ge=1,
        description="accuracy epochs without a better validation nDCG before it has converged; softmax runs to its end",
    )
    accuracy_epochs: int | None = Field(
        default=None, ge=0, description="accuracy epochs at the most; none: 200, for softmax 60"
    )
    unmask: int = Field(default=100, ge=0, description="n, extra items kept in T for each user (Sec. 3.3.2)")
    unmask_policy: Literal["top", "random", "none"] = Field(
        default="top", description="which extra items are kept in T"
    )
    rows: int | None = Field(
        default=None, ge=1, description="r_b, users per mini-batch (Sec. 3.3.3); none: all, exactly"
    )
    columns: int | None = Field(default=None, ge=1, description="c_b, items per mini-batch; none: all, exactly")
    eps: float = Field(default=0.01, gt=0, description="ε inside the logarithm of Reg_cov")
    reg_cov: bool = Field(default=True, description="use the coverage regularizer")
    reg_skew: bool = Field(default=True, description="use the skewness regularizer")
    skew_rows: Literal["list", "kept"] = Field(
        default="list", description="Reg_skew reads the k listed scores, or all kept in T"
    )
    mask_seen: bool = Field(default=True, description="leave seen items out of T, as they are out of every list")
    blocks: Literal["share", "release"] = Field(
        default="share", description="list length in a mini-batch: its share of k, or as released"
    )
    diversity_rate: float = Field(default=0.001, gt=0, le=1, description="Adam's step size in the diversity phase")
    diversity_epochs: int = Field(
        default=200, ge=0, description="n_ep, epochs of the diversity phase: points of the curve (prices: at most)"
    )
    delta: float = Field(
        default=0.03, gt=0, le=100, description="δ of the prices ρ·log(f + δ): the smaller, the more coverage counts"
    )
    deepest: float = Field(
        default=0.4, gt=0, le=1, description="prices: the curve ends where so much validation nDCG is lost"
    )
    schedule: Literal["sequential", "alternating"] = Field(
        default="sequential", description="Algorithm 1, or epochs in turn (Q3)"
    )
    carry_adam: bool = Field(
        default=False, description="keep Adam's moments of the accuracy phase for the diversity phase"
    )
    seed: int = Field(default=0, ge=0, description="seed of everything random")

    @model_validator(mode="before")
    @classmethod
    def preset_fills_what_is_not_given(cls, given: ArgsKwargs) -> ArgsKwargs:
        """Settings given by name win over the preset's."""
        values = dict(given.kwargs or {})
        name = values.get("preset")
        return ArgsKwargs(given.args, PRESETS.get(name, {}) | values) if isinstance(name, str) else given

    @model_validator(mode="after")
    def something_to_minimise(self) -> Self:
        """A diversity phase needs at least one of its regularizers."""
        if not (self.reg_cov or self.reg_skew) and self.diversity_epochs:
            raise ValueError("reg_cov and reg_skew are both off: nothing is left to train in the diversity phase")
        if self.schedule == "alternating" and (self.method == "prices" or self.accuracy == "softmax"):
            raise ValueError("the alternating schedule is the paper's; set accuracy to bpr or mse, and method to divmf")
        return self

    @property
    def epochs(self) -> int:
        """Accuracy epochs at the most."""
        given = self.accuracy_epochs
        return (60 if self.accuracy == "softmax" else 200) if given is None else given

    @property
    def decay(self) -> float:
        """L2 regularization of sampled losses and of the diversity phase."""
        return 0.0001 if self.l2 is None or self.accuracy == "softmax" else self.l2

    def rate(self, epoch: int) -> float:
        """Adam's step size in an accuracy epoch: constant, or for softmax half a cosine down to zero."""
        if self.accuracy == "softmax":
            return (self.learning_rate or 0.15) * (1 + math.cos(math.pi * (epoch - 1) / max(1, self.epochs))) / 2
        return self.learning_rate or 0.001


def epoch_rng(seed: int, phase: str, epoch: int) -> np.random.Generator:
    """The generator of one epoch: it depends on nothing that came before, so a resumed run draws the same."""
    return np.random.default_rng([seed, 1 + ("start", "accuracy", "diversity").index(phase), epoch])


def initial_model(n_users: int, n_items: int, config: TrainConfig) -> MF:
    """Random vectors of the configured length."""
    rng = epoch_rng(config.seed, "start", 0)
    return MF.random(n_users, n_items, config.dim, torch.Generator().manual_seed(draw_key(rng)))


def adam(model: MF, learning_rate: float, l2: float, beta: float = 0.999) -> torch.optim.Adam:
    """Adam over both tables of vectors, as the paper sets it; beta: how long it remembers squared gradients."""
    for table in (model.users, model.items):
        table.requires_grad_()
    return torch.optim.Adam(
        [model.users, model.items], lr=learning_rate, betas=(0.9, beta), weight_decay=l2, fused=True
    )


def accuracy_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """One pass over the interactions with sampled negatives, or one step of the full softmax; the mean loss."""
    if config.accuracy == "softmax":
        assert config.l2 is not None, "chosen before training"
        loss = softmax_gradient(model, train.matrix, config.l2)
        optimiser.step()
        return check(loss / len(train), "accuracy")
    steps = compiled_steps if model.users.device.type == "cpu" else steps_by_autograd
    size = max(1, config.batch // config.negatives)
    total = sum(steps(model, config, optimiser, size, slab) for slab in slabs(train, size, config.negatives, rng))
    return check(total / (len(train) * config.negatives), "accuracy")


def steps_by_autograd(
    model: MF, config: TrainConfig, optimiser: torch.optim.Adam, size: int, slab: tuple[Array, Array, Array]
) -> float:
    """A step for each `size` pairs of users, items met and items not met; the sum of their losses."""
    loss_of, total = losses.ACCURACY_LOSSES[config.accuracy], 0.0
    for first in range(0, len(slab[0]), size):
        batch = (torch.from_numpy(part[first : first + size]).to(model.users.device) for part in slab)
        users, positives, negatives = batch
        items = torch.cat([positives[:, None], negatives], dim=1)  # (b, 1 + n)
        # embedding(), not indexing: the backward pass of indexing adds in the order threads happen to come
        scores = torch.einsum("bd,bnd->bn", embedding(users, model.users), embedding(items, model.items))
        scores = scores + model.bias[items]
        unmet = scores[:, 1:]
        if config.accuracy == "mse":  # the negative of a user who met everything is the positive itself: no negative
            unmet = unmet.masked_fill(negatives == positives[:, None], 0.0)
        loss = loss_of(scores[:, :1], unmet)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += float(loss.detach())
    return total


def compiled_steps(
    model: MF, config: TrainConfig, optimiser: torch.optim.Adam, size: int, slab: tuple[Array, Array, Array]
) -> float:
    """As `steps_by_autograd`, compiled for the CPU; Adam's moments stay where torch keeps them."""
    from divmf.kernels.pairs import train_pairs

    tables = (model.users, model.items)
    for table in tables:
        if not (state := optimiser.state[table]):
            state |= {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(table),
                "exp_avg_sq": torch.zeros_like(table),
            }
    states = [optimiser.state[table] for table in tables]
    users, items = (table.detach().numpy() for table in tables)
    mean_u, square_u, mean_i, square_i = (
        s[name].detach().numpy() for s in states for name in ("exp_avg", "exp_avg_sq")
    )
    group = optimiser.param_groups[0]
    total = train_pairs(
        config.accuracy == "bpr", users, items, model.bias.numpy(), (mean_u, square_u, mean_i, square_i),
        (np.zeros_like(users), np.zeros_like(items)), int(states[0]["step"]), group["lr"], group["weight_decay"],
        size, *slab,
    )  # fmt: skip
    for state in states:
        state["step"] += math.ceil(len(slab[0]) / size)
    return float(total)


def diversity_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Optimizer, rng: np.random.Generator
) -> float:
    """One step on L_div of the whole matrix, or one on each mini-batch of it; the mean loss of a user."""
    total = 0.0
    for users, items in submatrices(model.n_users, model.n_items, config.rows, config.columns, rng):
        total += diversity_gradient(model, users, items, train.matrix, config, draw_key(rng))
        optimiser.step()
    return check(total / model.n_users, "diversity")


def check(loss: float, phase: str) -> float:
    """The loss, if it is a number."""
    if not math.isfinite(loss):
        raise TrainingDiverged(
            f"the {phase} loss became {loss}; choose a smaller learning rate. The epochs before are kept"
        )
    return loss


@dataclass(frozen=True)
class Lengths:
    """How much of a row a mini-batch with some of the items looks at, Sec. 3.3.3.

    listed   items of T: a block with c_b of |I| items holds k·c_b/|I| of a user's k recommendations on average
    extra    further items unmasked
    skewed   scores that Reg_skew reads
    """

    listed: int
    extra: int
    skewed: int

    @classmethod
    def of(cls, config: TrainConfig, n_items: int, in_block: int) -> Self:
        """For a block of `in_block` of the items; the last block of an epoch may be smaller than the others."""
        n_blocks = math.ceil(n_items / min(config.columns or n_items, n_items))
        extra = math.ceil(config.unmask / n_blocks) if config.unmask_policy != "none" else 0
        listed = math.ceil(config.k * in_block / n_items)
        skewed = listed
        if config.blocks == "release":
            listed, skewed = math.ceil(config.k / n_blocks), min(config.k, in_block)
        listed = min(listed, in_block)
        extra = min(extra, in_block - listed)
        return cls(listed, extra, listed + extra if config.skew_rows == "kept" else skewed)


# entries of T that pass 1 remembers for pass 2 (a gigabyte); of larger blocks they are found again
REMEMBERED = 1 << 28


@torch.no_grad()
def diversity_gradient(
    model: MF, users: Array, items: Array | None, seen: sparse.csr_array, config: TrainConfig, key: int,
    block_scores: int = BLOCK_SCORES,
) -> float:  # fmt: skip
    """Set the parameters' .grad to the gradient of L_div of a submatrix; L_div.  Exact, in memory of one chunk.

    The gradient of −Σ_i log(c_i + ε) equals that of −Σ_u Σ_i t_ui / (c_i + ε) with c held constant. So pass 1 sums the
    column mass c over chunks of users, and pass 2 finds each chunk's gradient on its own.
    """
    lengths = Lengths.of(config, model.n_items, model.n_items if items is None else len(items))
    best_only = config.unmask_policy == "top" or (lengths.extra == 0 and lengths.skewed <= lengths.listed)
    fits = len(users) * (lengths.listed + lengths.extra) <= REMEMBERED
    if model.users.device.type == "cpu" and model.users.dtype == torch.float32 and best_only and fits:
        return gradient_by_kernel(model, users, items, seen, config, lengths)
    return gradient_by_chunks(model, users, items, seen, config, lengths, key, block_scores)


def gradient_by_kernel(
    model: MF, users: Array, items: Array | None, seen: sparse.csr_array, config: TrainConfig, lengths: Lengths
) -> float:
    """As `gradient_by_chunks`, compiled for the CPU, where T keeps the best items of each user and no others."""
    from divmf.kernels.diversity import Block, gradient_of

    columns = slice(None) if items is None else items
    rows = slice(None) if len(users) == model.n_users else users
    vectors = np.ascontiguousarray(model.items.detach().numpy()[columns])
    met = sparse.csr_array((len(users), len(vectors)))
    if config.mask_seen:
        met = seen if len(users) == model.n_users else seen[users]
        met = met if items is None else met[:, items]
    block = Block(
        np.ascontiguousarray(model.users.detach().numpy()[rows]), vectors, np.ascontiguousarray(vectors.T),
        np.ascontiguousarray(model.bias.numpy()[columns]), met.indptr, met.indices, np.float32(UNREACHABLE),
    )  # fmt: skip
    width = lengths.listed + lengths.extra
    n_skewed = min(lengths.skewed, width) if config.reg_skew else 0
    total, *found = gradient_of(block, width, n_skewed, config.eps if config.reg_cov else None)
    check(total, "diversity")
    for table, places, gradient in zip((model.users, model.items), (rows, columns), found, strict=True):
        table.grad = torch.zeros_like(table)
        table.grad.numpy()[places] = gradient
    return total


def gradient_by_chunks(
    model: MF, users: Array, items: Array | None, seen: sparse.csr_array, config: TrainConfig, lengths: Lengths,
    key: int, block_scores: int,
) -> float:  # fmt: skip
    """The same on any device, in any precision and with any items kept: what the kernel must equal."""
    vectors, bias, met = model.items.detach(), model.bias, seen
    if items is not None:
        columns = torch.from_numpy(items).to(model.items.device)
        vectors, bias, met = vectors[columns], bias[columns], seen[users][:, items]
    user_gradient, item_gradient = torch.zeros_like(model.users), torch.zeros_like(vectors)
    mass = vectors.new_zeros(len(vectors)) if config.reg_cov else None
    width = lengths.listed + lengths.extra
    remembered = torch.empty((len(users), width) if len(users) * width <= REMEMBERED else 0, dtype=torch.int32)

    def hide_seen(values: Tensor, rows: slice, value: float) -> None:
        if config.mask_seen:
            fill_seen(values, users[rows] if items is None else np.arange(rows.start, rows.stop), met, value)

    def scored(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Some of the block's users: their numbers, their vectors and their scores."""
        chosen = torch.from_numpy(users[rows]).to(vectors.device)
        scores = torch.addmm(bias, model.users[chosen], vectors.T)  # (rows, items)
        hide_seen(scores, rows, UNREACHABLE)
        return chosen, model.users[chosen], scores

    def kept_of(scores: Tensor, rows: slice) -> Tensor:
        return kept_items(scores, lengths.listed, lengths.extra, config.unmask_policy, users[rows], key)

    def skewed_of(scores: Tensor, kept: Tensor) -> Tensor:
        """The items Reg_skew reads: the first of the kept ones, or, with released blocks, more than T holds."""
        inside = lengths.skewed <= lengths.listed or config.unmask_policy == "top" or config.skew_rows == "kept"
        return kept[:, : lengths.skewed] if inside else top(scores, lengths.skewed)[0]

    total, log_z = 0.0, vectors.new_empty(len(users))
    for rows in blocks(len(users), len(vectors), block_scores):
        _, _, scores = scored(rows)
        kept = kept_of(scores, rows)
        if int(kept.min()) < 0:  # a row without enough numbers in it
            check(math.nan, "diversity")
        log_z[rows] = scores.logsumexp(dim=1)
        if mass is not None:
            mass += losses.column_mass(losses.log_mass(scores, kept, log_z[rows]).exp(), kept, len(mass))
        if config.reg_skew:
            total += float(losses.skewness(losses.log_mass(scores, skewed_of(scores, kept), log_z[rows])))
        if len(remembered):
            remembered[rows] = kept.to(torch.int32)
    if mass is not None:
        total += float(losses.coverage(mass, config.eps))
    for rows in blocks(len(users), len(vectors), block_scores):
        chosen, user_vectors, scores = scored(rows)
        kept = remembered[rows].long().to(scores.device) if len(remembered) else kept_of(scores, rows)
        skewed = skewed_of(scores, kept) if config.reg_skew else None
        gradient = losses.score_gradient_(scores, kept, skewed, log_z[rows], mass, config.eps)
        hide_seen(gradient, rows, 0.0)  # matters for a user who has seen all of the block's items
        user_gradient[chosen] = gradient @ vectors
        item_gradient.addmm_(gradient.T, user_vectors)
    if items is not None:
        whole = torch.zeros_like(model.items)
        whole[columns] = item_gradient
        item_gradient = whole
    model.users.grad, model.items.grad = user_gradient, item_gradient
    return total


EPOCHS = {"accuracy": accuracy_epoch, "diversity": diversity_epoch}
