"""How the nouns show in a notebook: a small HTML table each, which needs nothing from elsewhere."""

from collections.abc import Iterable, Sequence
from html import escape

Cell = str | float | None


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table with its caption; words are escaped, numbers written to four figures, – for None."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>"


def cell(value: Cell) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return escape(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
