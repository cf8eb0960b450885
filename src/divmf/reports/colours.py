"""Colours that colour-blind people tell apart (after Okabe and Ito), each with its twin for a dark page."""

from collections.abc import Sequence

INK = ("#22262b", "#e8e6e1")
LABEL = ("#4b5158", "#b9bcc0")
AXIS = ("#8a9099", "#7d838b")
LINE = ("#e4e3de", "#2f3338")
PANEL = ("#fffffe", "#1b1e22")  # not quite white, so that only what is meant to vanish does
GREY = ("#7b828b", "#a6adb6")
PALETTE = (
    ("#0072b2", "#5ab0ec"),
    ("#d55e00", "#ff8f4a"),
    ("#009e73", "#35c99d"),
    ("#b0578d", "#e39cc4"),
    ("#b58900", "#f0c14b"),
    ("#4b4fb8", "#a5a8ff"),
    ("#7a4b21", "#cfa37a"),
)
PAIRS = (INK, LABEL, AXIS, LINE, PANEL, GREY, *PALETTE)
SHAPES = ("circle", "square", "triangle-up", "cross", "triangle-down")
DASHES = ([1.0, 0.0], [5.0, 3.0], [1.5, 2.5])


BASES = ("MF", "shown now")  # what others are compared with


def colours(names: Sequence[str]) -> list[str]:
    """A colour a name: grey for what others are compared with; the first colour for the first of those only."""
    first, *rest = (light for light, _ in PALETTE)
    others = [name for name in names if name not in BASES]
    turn = {name: rest[(place - 1) % len(rest)] if place else first for place, name in enumerate(others)}
    return [turn.get(name, GREY[0]) for name in names]


def shapes(names: Sequence[str]) -> list[str]:
    """A shape a name: with the colour, 31 methods are told apart."""
    return [SHAPES[place % len(SHAPES)] for place in range(len(names))]


def line_of(place: int) -> int:
    """Which of DASHES the method at this place has: another one each time the colours start again."""
    return (max(0, place - 1) // (len(PALETTE) - 1)) % len(DASHES)
