"""Formulas as MathML, made when the site is built: browsers draw it themselves, without a script or a network."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Every formula that arithmatex found, drawn."""
    return FORMULA.sub(drawn, html)


def drawn(found: re.Match[str]) -> str:
    """One formula: in its line, or on a line of its own that scrolls where it is too wide."""
    kind = "block" if found[2] == "[" else "inline"
    return f'<{found[1]} class="formula">{convert(unescape(found[3]).strip(), display=kind)}</{found[1]}>'
