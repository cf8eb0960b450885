"""What a page is made of: sections of prose, charts and tables; and how numbers are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from divmf.ranking.metrics import Estimate

Text = str | Markup
Cell = str | float | None


@dataclass(frozen=True)
class Figure:
    """A chart (anything of altair's, or its specification) and the words below it."""

    chart: Any
    caption: Text = ""


@dataclass(frozen=True)
class Table:
    """A header and rows; values are written by `cell`.

    left: the columns that hold words, not numbers; half: narrow enough for two side by side
    fold: the words under which a page folds the table away until it is opened; not folded without
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: Text = ""
    left: Sequence[int] = (0,)
    half: bool = False
    fold: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, in this order; a card is a big number and its words."""

    heading: str
    prose: Sequence[Text] = ()
    cards: Sequence[tuple[str, str]] = ()
    charts: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


def cell(value: Cell) -> Markup:
    """Words as they are (escaped unless Markup), numbers to four figures, an estimate with its interval, – for None."""
    if value is None:
        return Markup("–")
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Estimate):
        return Markup("{} <small>{}–{}</small>").format(number(value), number(value.low), number(value.high))
    return Markup(number(value))


def change(value: Estimate) -> Markup:
    """A difference: as `cell`, with its sign."""
    return Markup("{} <small>{} to {}</small>").format(*map(signed, (value, value.low, value.high)))


def number(value: float) -> str:
    """A number for people: whole ones with thousands apart, others to four figures; a real minus sign."""
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    decimals = next((places for limit, places in ((1, 4), (10, 3), (100, 2)) if abs(value) < limit), 1)
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not float(text.replace(",", "")) else text.replace("-", "−")


def signed(value: float) -> str:
    """As `number`, with a plus where it is above zero."""
    text = number(value)
    return f"+{text}" if value > 0 and text.strip("0.,") else text


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * value:.{digits}f}%".replace("-", "−")


def relative(share: float) -> str:
    """A relative change with its sign."""
    return f"{'+' if share > 0 else ''}{percent(share)}"


def duration(seconds: float) -> str:
    """Seconds for people."""
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def listing(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def command_cell(command: str) -> Markup:
    """A command; lines may break in a long one, so that there is room beside it for what it means."""
    return command_text(command, ' class="long"' if len(command) > 60 else "")


def command_text(command: str, attributes: str = "") -> Markup:
    """A command as code, in which lines break between words and not after the hyphens of an option."""
    words = (
        Markup('<span class="word">{}</span>').format(word) if "-" in word else word for word in command.split(" ")
    )
    return Markup("<code{}>{}</code>").format(Markup(attributes), Markup(" ").join(words))
