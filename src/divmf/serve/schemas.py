"""What requests and answers look like: the OpenAPI document is made from these."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, StrictStr, WithJsonSchema

from divmf.serve.catalog import LONGEST
from divmf.serve.engine import MOST_EXCLUDED, MOST_HISTORY, MOST_K
from divmf.serve.shared import LONGEST_TITLE, MOST_SHARES

UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
MOST_EVENTS = MOST_ITEMS = 1000


def plain(text: str) -> str:
    """Text without what steers a terminal or a log, and without half characters."""
    if UNFIT.search(text):
        raise ValueError("must not hold control characters or half characters")
    return text


def plain_id(value: Any) -> int | str:
    """An id that a database, a log and a page can hold."""
    if isinstance(value, str):
        if not 1 <= len(value) <= LONGEST:
            raise ValueError(f"should have 1 to {LONGEST} characters; it has {len(value):,}")
        return plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("should be an id: text, or a whole number")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("must fit into 64 bits")
    return value


NUMBERS = {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}
TEXTS = {"type": "string", "minLength": 1, "maxLength": LONGEST}
Id = Annotated[int | str, PlainValidator(plain_id), WithJsonSchema({"anyOf": [NUMBERS, TEXTS]})]
Word = Annotated[StrictStr, Field(min_length=1, max_length=100), AfterValidator(plain)]
Value = Annotated[StrictStr, Field(max_length=200), AfterValidator(plain)]


class Body(BaseModel):
    """A request; a field that is misspelt is an error."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Person(Body):
    """Whom a list is for: a user, a history, both, or nobody in particular."""

    user: Id | None = Field(default=None, description="the user's id, known from training or not", examples=["u1"])
    history: list[Id] = Field(
        default_factory=list, max_length=MOST_HISTORY, examples=[["i7", "i9"]],
        description="items the person met, for somebody new, or beside what is known; unknown items are passed over",
    )  # fmt: skip


class RecommendBody(Person):
    """A page to be filled."""

    k: int | None = Field(
        default=None, ge=1, le=MOST_K, description="slots of the page; those of the run, if not given"
    )
    exclude: list[Id] = Field(
        default_factory=list, max_length=MOST_EXCLUDED, description="items that must not be on the page"
    )
    where: dict[Word, Value | list[Value]] = Field(
        default_factory=dict, max_length=20, examples=[{"category": "books"}],
        description="attributes of the catalog that items must have: one value, or one of several",
    )  # fmt: skip
    accuracy: float = Field(
        default=0.0, ge=0, le=1,
        description="how little this page may give up for exposure: 0, discounts count in full; 1, not at all",
    )  # fmt: skip
    dry_run: bool = Field(default=False, description="do not count it as shown")


class Slot(BaseModel):
    """One slot of a page."""

    item: int | str = Field(description="the item's id")
    title: str | None = Field(description="what it is called, if the catalog says")
    score: float = Field(description="the model's score for this person")
    discount: float = Field(description="what was added to its value because it is shown less than its share")


class Page(BaseModel):
    """A page, the best items first."""

    items: list[Slot]
    basis: Literal["user", "history", "nothing"] = Field(
        description="what it rests on: a user of the training, a history folded in, or the mean of everybody"
    )
    counted: bool = Field(description="whether it counts as shown")
    unknown: list[int | str] = Field(description="items of the history that the catalog does not have, passed over")


class ShownBody(Body):
    """A page that was rendered elsewhere, after a recommendation with dry_run."""

    items: list[Id] = Field(min_length=1, max_length=MOST_K, description="the items in order, each once")
    user: Id | None = Field(default=None, description="who saw it")
    request: Word | None = Field(default=None, description="a name of yours for this page: the same one counts once")


class Counted(BaseModel):
    """Whether a page was counted."""

    counted: bool = Field(description="false, if a page of this name was counted before")


class EventBody(Body):
    """Somebody met an item."""

    user: Id
    item: Id
    kind: Word = Field(default="click", description="what happened: click, purchase, …")


class EventsBody(Body):
    """What people did; in their histories at once, and in the log for the next training."""

    events: list[EventBody] = Field(min_length=1, max_length=MOST_EVENTS)


class Kept(BaseModel):
    """How many rows were kept."""

    kept: int


class EventsKept(Kept):
    """How many events were kept."""

    unknown: list[int | str] = Field(
        description="items of them that the catalog does not have: in the log, but in nobody's history"
    )


class ItemBody(Body):
    """An item to be added, or what is to be changed of one that is there."""

    item: Id
    title: Annotated[StrictStr, Field(max_length=LONGEST_TITLE), AfterValidator(plain)] | None = None
    attributes: dict[Word, Value] = Field(default_factory=dict, max_length=20, description="what it is filtered by")
    similar: list[Id] = Field(
        default_factory=list, max_length=100,
        description="of a new item: items it is like, until the next training; the mean of all, if none",
    )  # fmt: skip
    capacity: int | None = Field(
        default=None, ge=-1, lt=1 << 62,
        description="lists it may be in, counted since the store began; -1: any number, 0: it is out of stock",
    )  # fmt: skip
    share: float | None = Field(
        default=None, ge=0, le=MOST_SHARES, description="how many times its even share of the exposure it may expect"
    )


class ItemsBody(Body):
    """Items to be added or changed."""

    items: list[ItemBody] = Field(min_length=1, max_length=MOST_ITEMS)


Table = dict[Word, Any]


class RulesBody(Body):
    """The tables of rules.toml; files cannot be named."""

    start: bool = Field(default=False, description="the rules that the service was started with; no tables beside it")
    capacity: Table | None = Field(default=None, description="never in more lists", examples=[{"column": "seats"}])
    floor: Table | None = Field(default=None, description="in at least so many lists of each horizon")
    target: Table | None = Field(default=None, description="what exposure is aimed at: even, merit or a column")
    groups: dict[Word, Table] = Field(
        default_factory=dict, max_length=20, examples=[{"seller": {"floor": "1%", "per_list": 2}}],
        description="a column of the catalog, and what holds for each value: floor, cap, target, per_list",
    )  # fmt: skip
    filter: Table | None = Field(default=None, description="what never (exclude) or alone (allow) stands in a list")
    promote: Table | None = Field(default=None, description="items that together have at least a share of all slots")


class PreviewBody(Body):
    """Lists at a point of the curve, for a look; nothing is counted."""

    people: list[Person] = Field(min_length=1, max_length=20)
    epoch: int = Field(ge=0, le=1_000_000, description="the point; 0 is the model before diversifying")
    k: int | None = Field(default=None, ge=1, le=MOST_K)


class PointBody(Body):
    """The operating point to go over to."""

    epoch: int = Field(ge=0, le=1_000_000, description="the point; 0 is the model before diversifying")


class Status(BaseModel):
    """How the service is."""

    status: str
    point: str = Field(description="the operating point")
    requests: int = Field(description="pages shown since the store began")
