"""The sections of a page as Markdown, for documentation: the same words, tables and figures."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from divmf.reports.section import Section, Table, Text, cell


def markdown_of(sections: Sequence[Section], images: Mapping[str, Any], level: int = 2) -> str:
    """The sections one after the other; images: the charts by the name of their file."""
    parts: list[str] = []
    for section in sections:
        parts.append(f"{'#' * level} {section.heading}")
        parts += [plain(paragraph) for paragraph in section.prose]
        if section.cards:
            parts.append("\n".join(f"- **{number}** {words}" for number, words in section.cards))
        for figure in section.charts:
            caption = plain(figure.caption)
            file = next(name for name, chart in images.items() if chart is figure.chart)
            parts += [f"![{caption.replace('[', '(').replace(']', ')')}]({file})", f"*{caption}*"]
        parts += [table_of(table) for table in section.tables]
    return "\n\n".join(parts) + "\n"


def table_of(table: Table) -> str:
    """A table with its caption above it."""
    lines = [
        f"| {' | '.join(table.header)} |",
        f"|{'|'.join('---' if position in table.left else '---:' for position in range(len(table.header)))}|",
    ]
    for row in table.rows:
        cells = [plain(cell(value)).replace("|", "\\|") for value in row]
        lines.append(f"| {' | '.join(cells)} |")
    return (f"{plain(table.caption)}\n\n" if table.caption else "") + "\n".join(lines)


def plain(text: Text) -> str:
    """Markup as Markdown: bold, code and line breaks stay, the interval of a number goes into brackets."""
    if not isinstance(text, Markup):
        return text
    found = re.sub(r"</?b>", "**", str(text))
    found = re.sub(r"</?code>", "`", found)
    found = re.sub(r"</?em>", "*", found)
    found = re.sub(r"<br>", "; ", found)
    found = re.sub(r"<small>(.*?)</small>", r"(\1)", found)
    return str(Markup(found).striptags())
