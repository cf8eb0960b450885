"""What the service tells of itself: the answers that are looked at, not served to people."""

from typing import Any, Literal

from pydantic import BaseModel, Field

ItemId = int | str


class Named(BaseModel):
    """An item by id and title."""

    item: ItemId
    title: str | None = Field(description="what it is called, if the catalog says")


class Found(Named):
    """An item that was searched for."""

    shown: int = Field(description="showings since the store began")


class LoggedEvent(BaseModel):
    """One row of the log of events, as training reads it."""

    number: int = Field(description="its place in the log: `after` of the next request")
    user_id: str
    item_id: str
    kind: str
    timestamp: float = Field(description="seconds since 1970")


class PageShown(BaseModel):
    """A page that was shown."""

    at: float = Field(description="seconds since 1970")
    user: str | None
    items: list[Named]


class RuleTotal(BaseModel):
    """What the rules demand of some items together, and what these were given."""

    rule: str = Field(description="the table of the rules, such as seller")
    name: str = Field(description="which items of it")
    at_least: int = Field(description="showings in each horizon; 0 if there is no floor")
    at_most: int | None = Field(description="showings since the store began, if there is such a cap")
    share_at_most: float | None = Field(description="share of all slots, if there is such a cap")
    per_list: int | None = Field(description="in one list, if that is limited")
    given: int = Field(description="showings that count towards the cap")
    in_horizon: int = Field(description="showings within this horizon")
    pay: float = Field(description="what one more showing is paid, or charged if below 0, for the sake of the rule")
    full: bool = Field(description="whether the cap is reached")


class RulesTold(BaseModel):
    """The rules that hold."""

    set: dict[str, Any] | None = Field(description="the tables that were sent last, if any")
    origin: Literal["request", "start", "none"] = Field(
        alias="from", description="whether they were sent, are those of the start, or there are none"
    )
    impossible: list[Any] = Field(description="demands that cannot be met, and how far they can")
    totals: list[RuleTotal] = Field(
        description="the first hundred: floors, those furthest from theirs first, then groups, then items"
    )
    n_totals: int = Field(description="how many there are in all")


class Shown(BaseModel):
    """Somebody who was shown an item."""

    at: float = Field(description="seconds since 1970")
    user: str | None
    slot: int = Field(description="from 1")


class Window(BaseModel):
    """How much an answer rests on."""

    requests: int = Field(description="of this horizon and the one before")
    showings: int


class ItemTold(Named):
    """One item's part of the exposure."""

    attributes: dict[str, str]
    shown: int = Field(description="showings since the store began")
    window: Window
    target: float = Field(description="showings of its share of a horizon")
    pace: float | None = Field(description="showings a request at the present discount; none without discounts")
    share: float = Field(description="how many times its even share it may expect")
    discount: float = Field(description="what is added to its value now")
    most: float = Field(description="the discount of an item that was never shown")
    capacity: int | None = Field(description="lists it may be in since the store began, if that was set for it")
    rules: list[RuleTotal] = Field(description="the rules that it stands under")
    shown_to: list[Shown] = Field(description="of the last pages, the latest first")
    advice: str = Field(description="how to give it more")


class Starved(BaseModel):
    """Items that could have been shown and were not."""

    items: int
    first: list[Named] = Field(description="some of them")


class Share(BaseModel):
    """The showings of one value of an attribute."""

    name: str
    shown: int


class Groups(BaseModel):
    """How the values of an attribute share the showings."""

    column: str
    groups: int
    starved: int = Field(description="values without a showing")
    least: list[Share]
    most: list[Share]


class RulesSummary(BaseModel):
    """How far the rules are kept."""

    totals: int
    floors: int
    reached: int = Field(description="floors reached within this horizon")
    full: int = Field(description="caps reached")
    blocked: int = Field(description="items left out")
    impossible: int = Field(description="demands that cannot be met")


class PointNow(BaseModel):
    """The operating point."""

    name: str
    epoch: int = Field(description="its number; 0 is the model before diversifying")


class Exposure(BaseModel):
    """How showings were shared out within this horizon and the one before."""

    requests: int = Field(description="pages shown since the store began")
    horizon: int = Field(description="requests over which exposure is shared out")
    window: Window
    items: int
    available: int = Field(description="items whose capacity is above 0")
    coverage: float = Field(description="share of the items that were shown")
    ceiling: float = Field(description="the most that so many slots could cover")
    gini: float | None
    entropy: float | None
    lorenz: list[float] = Field(description="share of all showings of the least shown 0, 1, …, 100% of the items")
    starved: Starved
    full: int = Field(description="items at their capacity")
    rho: float
    drift: float = Field(description="how far discounts are from the run's, as a root mean square in ρ")
    point: PointNow
    rules: RulesSummary | None
    groups: Groups | None
    waiting: int = Field(description="writes that wait for the store")


class CurvePoint(PointNow):
    """A point of the curve, with what it was measured to be."""

    rho: float | None
    valid: dict[str, float | None] = Field(description="on validation: ndcg, coverage, gini, entropy")
    test: dict[str, float | None]


class CurveTold(BaseModel):
    """The trade-off, from accurate to diverse."""

    points: list[CurvePoint]
    epoch: int = Field(description="the present point")
    k: int
    items: int


class PersonTold(BaseModel):
    """A user of the training."""

    user: ItemId
    met: int = Field(description="items met in training")
    some: list[Named]


class PreviewSlot(Named):
    """One slot of a list for a look."""

    discount: float
    new: bool = Field(description="whether the model alone would not have it in the list")
