"""Every setting of a training run, the presets, and the error of settings that do not work."""

import math
from collections.abc import Collection
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

SOFTMAX_RATE = 0.2  # where no other is given or found better
PRESETS: dict[str, dict[str, object]] = {
    "paper": {"model": "bpr", "method": "divmf", "adam": "dense", "shuffle": "triples", "mask_seen": False},
    "release": {
        "model": "bpr",
        "method": "divmf",
        "adam": "dense",
        "shuffle": "triples",
        "diversity_k": 10,
        "mask_seen": False,
        "skew_rows": "list",
        "blocks": "release",
        "carry_adam": True,
        "accuracy_end": "last",
        "accuracy_epochs": 30,
        "diversity_epochs": 170,
    },
}


# which settings are of one method alone: given with the other, they would do nothing
OF_METHOD: dict[str, tuple[str, ...]] = {
    "market": ("delta", "level", "steepness", "stake", "exposure", "deepest"),
    "divmf": (
        "unmask", "unmask_policy", "rows", "columns", "eps", "reg_cov", "reg_skew", "skew_rows", "diversity_k",
        "mask_seen", "blocks", "diversity_rate", "accuracy_end", "carry_adam",
    ),
}  # fmt: skip
# settings of models that are trained by epochs; where one is given and no model, the model is softmax
EPOCH_SETTINGS = (
    "negatives", "batch", "shuffle", "learning_rate", "adam", "l2", "l2_power", "patience", "accuracy_epochs",
)  # fmt: skip
VECTORS = ("softmax", "bpr", "mse")  # models that can be trained by epochs


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
    dim: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="length of the vectors of users and items; if not given, chosen on validation, or 32 for models"
        " trained by epochs",
    )
    model: Literal["auto", "softmax", "ease", "ials", "bpr", "mse"] = Field(
        default="auto",
        description="the model: the most accurate on validation (auto), or one kind, with its settings chosen on"
        " validation; bpr and mse are trained by epochs, as is softmax where settings of epochs are given or"
        " method is divmf",
    )
    budget: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="how much work may go into choosing a model, as seconds of one thread (60s, 5m);"
        " default: half a minute, and more for more data",
        json_schema_extra={"text": True},
    )
    method: Literal["market", "divmf"] = Field(
        default="market",
        description="what makes the curve: the exposure market, or the paper's diversity phase",
    )
    negatives: int = Field(
        default=4, ge=1, le=1000, description="items the user has not met, drawn for each one the user has"
    )
    batch: int = Field(default=4096, ge=1, description="samples (user, item met, item not met) in a step")
    shuffle: Literal["triples", "pairs"] = Field(
        default="pairs",
        description="what is shuffled into batches: single samples, or pairs (user, item met) with all items drawn"
        " for them",
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Adam's step size in the accuracy phase; if not given, 0.001, or for softmax chosen on validation"
        " (about 0.2)",
    )
    adam: Literal["dense", "rows"] | None = Field(
        default=None,
        description="what a step of bpr or mse updates: all rows, or only those in the batch, where Adam's steps in"
        " between are made up for when a row is next needed (the same result, except for L2); if not given, rows"
        " for large models",
    )
    l2: float | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="L2 regularization λ, added to the gradient; if not given, 0.0001, or for softmax chosen on"
        " validation",
    )
    l2_power: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="softmax: λ of a user or an item grows with this power of its number of interactions; 0: one λ"
        " for all",
    )
    patience: int = Field(
        default=20,
        ge=1,
        description="accuracy epochs without a better validation nDCG after which training ends; softmax does not end"
        " early",
    )
    accuracy_epochs: int | None = Field(
        default=None, ge=0, description="accuracy epochs at most; if not given, 200, or 40 for softmax"
    )
    unmask: int = Field(default=100, ge=0, description="n, extra items kept in T for each user (Sec. 3.3.2)")
    unmask_policy: Literal["top", "random", "none"] = Field(
        default="top", description="which extra items are kept in T"
    )
    rows: int | None = Field(
        default=None, ge=1, description="r_b, users per mini-batch (Sec. 3.3.3); all, if not given"
    )
    columns: int | None = Field(default=None, ge=1, description="c_b, items per mini-batch; all, if not given")
    eps: float = Field(default=0.01, gt=0, description="ε inside the logarithm of Reg_cov")
    reg_cov: bool = Field(default=True, description="use the coverage regularizer")
    reg_skew: bool = Field(default=True, description="use the skewness regularizer")
    skew_rows: Literal["kept", "list"] = Field(
        default="kept", description="what Reg_skew reads: all items kept in T, or the k best scores, also in a block"
    )
    diversity_k: int | None = Field(
        default=None,
        ge=1,
        description="k in the regularizers; k, if not given; where they differ, lists of both lengths are measured",
    )
    mask_seen: bool = Field(default=True, description="leave seen items out of T, as they are left out of every list")
    blocks: Literal["share", "release"] = Field(
        default="share", description="list length in a mini-batch: its share of k, or as in the released code"
    )
    diversity_rate: float = Field(default=0.001, gt=0, le=1, description="Adam's step size in the diversity phase")
    diversity_epochs: int = Field(
        default=200,
        ge=0,
        description="n_ep, epochs of the diversity phase, each a point of the curve; market: points at most",
    )
    delta: float = Field(
        default=1e-4,
        ge=1e-12,
        le=100,
        description="δ of the bonus: the smaller it is, the more an item's first showing counts",
    )
    level: float = Field(
        default=0.9,
        gt=0,
        le=1_000_000,
        description="the exposure at which an item's bonus ends, in even shares",
    )
    steepness: float = Field(default=16.0, ge=0.1, le=100, description="how sharply the bonus ends there; 1: slowly")
    stake: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="how much more the scores of active users count, as a power of their number of interactions; 0:"
        " all count alike; if not given, estimated from what is held out for validation",
    )
    exposure: Literal["count", "attention"] = Field(
        default="count",
        description="what a showing counts: the same in every slot (count), or 1/log2(slot + 1) (attention)",
    )
    deepest: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="the curve ends where this much validation nDCG is lost, such as 30%",
        json_schema_extra={"text": True},
    )
    schedule: Literal["sequential", "alternating", "joint"] = Field(
        default="sequential",
        description="accuracy first and then diversity (Algorithm 1), epochs of each in turn,"
        " or steps on the sum of both losses (Q3)",
    )
    accuracy_end: Literal["best", "last"] = Field(
        default="best",
        description="what the diversity phase begins with: the epoch that is best on validation, or the last of"
        " accuracy_epochs",
    )
    carry_adam: bool = Field(
        default=False, description="begin the diversity phase with Adam's moments of the epoch it starts from"
    )
    seed: int = Field(default=0, ge=0, description="seed of everything random")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where to compute; auto: on a GPU if there is one"
    )

    @field_validator("budget", mode="before")
    @classmethod
    def seconds_of(cls, given: object) -> object:
        """Seconds from 60, "60", "60s", "5m" or "1h"."""
        units = {"s": 1, "m": 60, "h": 3600}
        if not isinstance(given, str):
            return given
        number, unit = (given[:-1], units[given[-1]]) if given[-1:] in units else (given, 1)
        try:
            return float(number) * unit
        except ValueError:
            raise ValueError(f"should be a time such as 60s, 5m or 1h, not {given!r}") from None

    @field_validator("deepest", mode="before")
    @classmethod
    def fraction_of(cls, given: object) -> object:
        """A fraction from 0.3, "0.3" or "30%"."""
        if not (isinstance(given, str) and given.endswith("%")):
            return given
        try:
            return float(given[:-1]) / 100
        except ValueError:
            raise ValueError(f"should be a fraction such as 0.3 or 30%, not {given!r}") from None

    @model_validator(mode="before")
    @classmethod
    def preset_fills_what_is_not_given(cls, given: ArgsKwargs) -> ArgsKwargs:
        """Settings given by name win over the preset's; a model that is not named is one that suits them."""
        values = dict(given.kwargs or {})
        name = values.get("preset")
        values = PRESETS.get(name, {}) | values if isinstance(name, str) else values
        by_epochs = any(values.get(setting) is not None for setting in EPOCH_SETTINGS)
        if values.get("model") is None and (by_epochs or values.get("method") == "divmf"):
            values["model"] = "softmax"
        return ArgsKwargs(given.args, values)

    @model_validator(mode="after")
    def something_to_minimise(self) -> Self:
        """A diversity phase needs at least one of its regularizers."""
        if not (self.reg_cov or self.reg_skew) and self.diversity_epochs:
            raise ValueError("reg_cov and reg_skew are both off: nothing is left to train in the diversity phase")
        if self.schedule != "sequential" and (self.method != "divmf" or self.model == "softmax"):
            raise ValueError(
                f"the {self.schedule} schedule is the paper's; set model to bpr or mse, and method to divmf"
            )
        return self

    @model_validator(mode="after")
    def settings_of_the_model(self) -> Self:
        """A model has the settings that are its own."""
        if self.method == "divmf" and self.model not in VECTORS:
            raise ValueError(
                f"method divmf trains vectors; model {self.model} does not go with it: choose softmax or bpr"
            )
        described = self.__pydantic_fields__  # type: ignore[attr-defined]
        check_of_model(self.model, [name for name in EPOCH_SETTINGS if getattr(self, name) != described[name].default])
        if self.dim is not None and self.model == "ease":
            raise ValueError("dim is the length of vectors, and ease has none: leave it out, or choose ials or softmax")
        return self

    @property
    def by_epochs(self) -> bool:
        """Whether the model is trained by epochs, with the settings given; else its settings are chosen."""
        given = (self.l2, self.learning_rate, self.accuracy_epochs)
        softmax = self.method == "divmf" or any(value is not None for value in given)
        return self.model in ("bpr", "mse") or (self.model == "softmax" and softmax)

    @property
    def n_dims(self) -> int:
        """The length of vectors that are trained by epochs."""
        return 32 if self.dim is None else self.dim

    @property
    def epochs(self) -> int:
        """Accuracy epochs at the most."""
        given = self.accuracy_epochs
        return (40 if self.model == "softmax" else 200) if given is None else given

    @property
    def full_rate(self) -> int:
        """Epochs of the softmax loss before its step size goes down: three of five."""
        return round(0.6 * self.epochs)

    @property
    def decay(self) -> float:
        """L2 regularization of sampled losses and of the diversity phase."""
        return 0.0001 if self.l2 is None or self.model == "softmax" else self.l2

    def rate(self, epoch: int) -> float:
        """Adam's step size in an accuracy epoch: constant; for softmax, then half a cosine down to zero."""
        if self.model == "softmax":
            gone = max(0, epoch - 1 - self.full_rate) / max(1, self.epochs - self.full_rate)
            return (self.learning_rate or SOFTMAX_RATE) * (1 + math.cos(math.pi * gone)) / 2
        return self.learning_rate or 0.001


def check_of_model(model: str, given: Collection[str]) -> None:
    """Refuse settings of models that are trained by epochs where the model is another."""
    own = EPOCH_SETTINGS if model in VECTORS else ("l2",) if model == "ease" else ()
    for name in EPOCH_SETTINGS:
        if name in given and name not in own:
            raise ValueError(
                f"{name} is a setting of models trained by epochs (softmax, bpr, mse); model {model} chooses"
                " its own: leave it out, or name one of them"
            )


def check_of_method(config: TrainConfig, given: Collection[str] = ()) -> None:
    """Refuse settings of another method than the one chosen; those of a preset may stay.

    given: the settings that were named; one with its usual value does nothing either
    """
    check_of_model(config.model, given)
    usual = TrainConfig(preset=config.preset)
    for method, names in OF_METHOD.items():
        changed = [name for name in names if name in given or getattr(config, name) != getattr(usual, name)]
        if method != config.method and changed:
            raise ValueError(
                f"{changed[0]}={getattr(config, changed[0])!r} is a setting of method={method!r} and does nothing with"
                f" method={config.method!r}; leave it out, or choose method={method!r}"
            )


def check(loss: float, phase: str) -> float:
    """The loss, if it is a number, to twelve digits: in what order a compiled sum is made shows in those after."""
    if not math.isfinite(loss):
        raise TrainingDiverged(
            f"the {phase} loss became {loss}; choose a smaller learning rate. The epochs before are kept"
        )
    return float(f"{loss:.12g}")
