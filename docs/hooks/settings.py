"""The table of settings on the page of the Python reference, made from their fields each time the site is built."""

from typing import Any

PAGE, MARK = "reference/api.md", "<!-- settings -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the table where the page has its mark."""
    return markdown.replace(MARK, "\n".join(table())) if page.file.src_uri == PAGE else markdown


def table() -> list[str]:
    """A row a setting: its default, what it may be, what it means."""
    from pydantic import TypeAdapter

    from divmf.models.config import TrainConfig

    rows = TypeAdapter(TrainConfig).json_schema()["properties"]
    lines = ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, about in rows.items():
        meaning = about.get("description", "").replace("|", "\\|")
        lines.append(f"| `{name}` | `{about.get('default')}` | {values(about)} | {meaning} |")
    return lines


def values(about: dict[str, Any]) -> str:
    """What a setting may be: names, or a range."""
    kinds = [kind for kind in about.get("anyOf", [about]) if kind.get("type") != "null"]
    told = []
    for kind in kinds:
        if "enum" in kind or "const" in kind:
            told.append(", ".join(f"`{value}`" for value in kind.get("enum", [kind.get("const")])))
        elif bounds := [f"{sign} {kind[key]:g}" for key, sign in SIGNS.items() if key in kind]:
            told.append(" and ".join(bounds))
        else:
            told.append(kind.get("type", ""))
    return "; ".join(filter(None, told))


SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
