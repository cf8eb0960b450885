"""Colours that colour-blind people tell apart (after Okabe and Ito), each with its twin for a dark page."""

from collections.abc import Sequence

INK = ("#22262b", "#e8e6e1")
LABEL = ("#4b5158", "#b9bcc0")
AXIS = ("#8a9099", "#7d838b")
LINE = ("#e4e3de", "#2f3338")
PANEL = ("#fffffe", "#1b1e22")  # not quite white, so that only what is meant to vanish does
GREY = ("#7b828b", "#a6adb6")
REST = ("#b4b9bf", "#59606a")  # what is drawn behind the highlighted lines
PALETTE = (
    ("#0072b2", "#5ab0ec"),
    ("#d55e00", "#ff8f4a"),
    ("#009e73", "#35c99d"),
    ("#b0578d", "#e39cc4"),
    ("#b58900", "#f0c14b"),
)
PAIRS = (INK, LABEL, AXIS, LINE, PANEL, GREY, REST, *PALETTE)
SHAPES = ("circle", "square", "triangle-up", "cross", "triangle-down")
HIGHLIGHTED = len(PALETTE)  # lines of a chart that have a colour: more are not told apart

BASES = ("model", "the model", "MF", "shown now")  # what others are compared with


def colours(names: Sequence[str]) -> list[str]:
    """A colour a name for the first few, one light grey for the rest, a dark grey for what others are compared with."""
    others = [name for name in names if name not in BASES]
    turn = {name: light for name, (light, _) in zip(others, PALETTE, strict=False)}
    return [GREY[0] if name in BASES else turn.get(name, REST[0]) for name in names]


def shapes(names: Sequence[str]) -> list[str]:
    """A shape a name: with the colour, the highlighted methods are told apart twice."""
    return [SHAPES[position % len(SHAPES)] for position in range(len(names))]
