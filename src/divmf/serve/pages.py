"""A page on its way: as it is made, and as it is told."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from divmf.market.response import Page
from divmf.serve.people import Taste
from divmf.serve.store import Outcome, Showing


@dataclass(frozen=True)
class Line:
    """One slot of a page: the item, its score, and the discount that helped it (0 if it did not)."""

    item: int | str
    title: str | None
    score: float
    discount: float


class Basis(NamedTuple):
    """What a page rests on, and the items of the history that the catalog does not have."""

    kind: str
    unknown: tuple[int | str, ...]


@dataclass(frozen=True)
class Recommendation:
    """A page.

    basis     what it rests on: "user" (of the training), "history" (folded in), "nothing" (the mean of everybody)
    counted   whether it counts as shown
    unknown   items of the history that the catalog does not have: they were passed over
    """

    items: tuple[Line, ...]
    basis: str
    counted: bool
    unknown: tuple[int | str, ...]


class Attempt(NamedTuple):
    """A page that was made: for whom, the row it is kept by, and what the store will say; none of it is a dry run."""

    page: Page
    taste: Taste
    row: Showing | None
    done: "Future[list[Outcome]] | None"


class Full(ValueError):
    """Items that were to be shown are at their capacity."""
