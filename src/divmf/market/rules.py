"""Rules of a shop: capacities, guarantees, groups of items, filters; said once, in a file or in Python.

    [capacity]                       # never in more lists than this
    column = "seats"                 # or items = {"A17" = 40}, or count = 40, with or without where
    [floor]                          # in at least so many lists
    where = "is_new"
    count = 50
    [target]                         # the exposure at which an item's bonus ends, in all as much as without
    by = "merit"                     # even, merit (interactions to a power) or a column
    [groups.seller]                  # a column of the catalog
    floor = "2%"                     # a share of all slots or a count, for each group or by name; so is cap
    target = "merit"                 # of the group's own bonus: even, merit or a column
    per_list = 2                     # at most so many of one group in a list
    [filter]
    exclude = "out_of_stock"         # a column, a file of ids or of user_id, item_id; allow likewise
    [promote]
    where = "campaign"
    share = "10%"

What rules mean for given data is worked out by `divmf.market.binding`.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import polars as pl
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from divmf.data.catalogs import read_items
from divmf.data.tables import to_polars

MOST = 1 << 40  # showings
STRICT = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


@dataclass(frozen=True)
class Amount:
    """A number of showings, or a share of all slots."""

    number: float
    is_share: bool = False

    def at_least(self, slots: int) -> int:
        """The fewest whole showings that are as much."""
        return math.ceil(self.number * slots - 1e-9) if self.is_share else int(self.number)

    def at_most(self, slots: int) -> int:
        """The most whole showings that are no more."""
        return math.floor(self.number * slots + 1e-9) if self.is_share else int(self.number)

    def __str__(self) -> str:
        return f"{100 * self.number:g}%" if self.is_share else f"{int(self.number):,}"


def amount(value: Any) -> Amount:
    """40 showings, or "2%" of all slots."""
    if isinstance(value, Amount):
        return value
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            number = float(value.strip()[:-1])
        except ValueError:
            number = math.nan
        if not 0 <= number <= 100:
            raise ValueError("shares go from 0% to 100%")
        return Amount(number / 100, is_share=True)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError("write a share such as '2%' or a whole number of showings such as 40")
    return Amount(value)


def share(value: Any) -> Amount:
    """A share of all slots."""
    made = amount(value)
    if not made.is_share:
        raise ValueError("write a share such as '10%'")
    return made


AnAmount = Annotated[Amount, BeforeValidator(amount)]
Count = Annotated[StrictInt, Field(ge=0, le=MOST)]
Item = str | StrictInt


class Some(BaseModel):
    """Which items a number is for: a column that holds it, a table by id, or one number (where an expression holds)."""

    model_config = STRICT
    column: str | None = None
    items: dict[Item, Count] | None = None
    count: Count | None = None
    where: str | None = None

    @model_validator(mode="after")
    def one_way(self) -> Self:
        """Exactly one of the ways."""
        given = [name for name in ("column", "items", "count") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of column, items and count; given: {', '.join(given) or 'none'}")
        if self.where is not None and self.items is not None:
            raise ValueError("items and where do not go together: items are named already")
        return self


class Target(BaseModel):
    """What exposure is aimed at: even, by merit (interactions to a power), or proportional to a column."""

    model_config = STRICT
    by: str = "even"
    power: float = Field(default=1.0, gt=0, le=10)


class Group(BaseModel):
    """What holds for each value of a column: a seller, a category."""

    model_config = STRICT
    column: str | None = None
    floor: AnAmount | dict[str, AnAmount] | None = None
    cap: AnAmount | dict[str, AnAmount] | None = None
    target: str | None = None
    power: float = Field(default=1.0, gt=0, le=10)
    weight: float = Field(default=1.0, gt=0, le=1e6)
    per_list: Annotated[StrictInt, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def says_something(self) -> Self:
        """A group without any rule is a mistake."""
        if all(value is None for value in (self.floor, self.cap, self.target, self.per_list)):
            raise ValueError("it says nothing; give floor, cap, target or per_list")
        return self


class Filter(BaseModel):
    """What never stands in a list (exclude), and what alone may (allow)."""

    model_config = STRICT
    exclude: str | list[Item] | None = None
    allow: str | list[Item] | None = None

    @model_validator(mode="after")
    def not_both(self) -> Self:
        """The same things cannot be excluded and allowed."""
        if self.exclude is None and self.allow is None:
            raise ValueError("it says nothing; give exclude or allow")
        if self.exclude == self.allow:
            raise ValueError(f"exclude and allow are both {self.exclude!r}; they contradict each other")
        return self


class Promote(BaseModel):
    """Items that together have at least a share of all slots."""

    model_config = STRICT
    where: str
    share: Annotated[Amount, BeforeValidator(share)]


class Rules(BaseModel):
    """The rules of a shop.

    Attributes:
        capacity: In how many lists items may be; as the table of rules.toml, a dictionary, or the class of this
            module, like the next five.
        floor: In how many lists items are to be at least.
        target: What exposure is aimed at.
        groups: What holds for each value of a column, by its name.
        filter: What never stands in a list, and what alone may.
        promote: Items that together have at least a share of all slots.
        catalog: A frame with an item column and the columns that rules name; a path to a file of it.

    Examples:
        >>> rules = Rules(groups={"seller": {"floor": 40, "per_list": 2}}, capacity={"items": {"A17": 40}})
        >>> rules.groups["seller"].per_list
        2
    """

    model_config = STRICT
    capacity: Some | None = None
    floor: Some | None = None
    target: Target | None = None
    groups: dict[str, Group] = Field(default_factory=dict)
    filter: Filter | None = None
    promote: Promote | None = None
    catalog: pl.DataFrame | None = Field(default=None, repr=False, exclude=True)
    _folder: Path = PrivateAttr(default=Path())
    _source: str = PrivateAttr(default="rules")

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise ValueError(one_line(error)) from None

    @field_validator("catalog", mode="before")
    @classmethod
    def as_frame(cls, value: Any) -> Any:
        """The catalog as a polars frame, read where it is a path."""
        if value is None:
            return None
        return read_items(value) if isinstance(value, str | Path) else to_polars(value)

    @classmethod
    def read(cls, path: str | Path, catalog: Any = None) -> Self:
        """From a file such as rules.toml; files that it names are looked for beside it.

        Args:
            path: The file.
            catalog: Columns of the items that rules speak of: a file, or a frame with item_id.

        Returns:
            The rules, not yet bound to users and items.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file")
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {str(error).splitlines()[0]}") from error
        try:
            if "catalog" in given:
                raise ValueError("catalog is not a rule; give it with --catalog (catalog=…)")
            if not given:
                raise ValueError("it says nothing; there are capacity, floor, target, groups, filter and promote")
            made = cls(**given, catalog=catalog)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        made._folder, made._source = path.parent, str(path)
        return made

    @property
    def source(self) -> str:
        """Where the rules are from, for messages."""
        return self._source

    @property
    def folder(self) -> Path:
        """Where files that the rules name are looked for."""
        return self._folder

    @property
    def is_empty(self) -> bool:
        """Whether nothing is ruled."""
        return not self.groups and not any((self.capacity, self.floor, self.target, self.filter, self.promote))


def one_line(error: ValidationError) -> str:
    """What pydantic found wrong, as one line that names the rule and the value."""
    problem = max(error.errors(), key=lambda each: len(each["loc"]))  # of the ways to write it, the nearest
    place = [str(part) for part in problem["loc"] if not str(part).startswith(("function-", "dict[", "constrained"))]
    name = ".".join(part for part in place if part not in ("str", "int", "list[union[str,int]]")) or "rules"
    if problem["type"] == "extra_forbidden":
        return (
            f"{name}: there is no such rule; there are capacity, floor, target, groups, filter and promote"
            if len(place) == 1
            else f"{name}: unknown key"
        )
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = problem["input"]
    shown = "" if isinstance(value, Mapping | BaseModel) else f" = {value!r}"
    return f"{name}{shown}: {message}"
