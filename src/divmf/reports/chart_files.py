"""Charts as files: a page that works offline, or a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divmf.engine.files import replacing
from divmf.reports.charts import styled
from divmf.reports.page import write_page
from divmf.reports.section import Figure, Section


def save_chart(chart: Any, path: str | Path, title: str = "divmf", caption: str = "") -> None:
    """Write a chart by its suffix: .html (one file, works offline), .png (twice the size), .svg or .json.

    title, caption: what stands above and below it on the page
    """
    path = Path(path)
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("html", "png", "svg", "json"):
        raise ValueError(f"{path}: {path.suffix!r} is not a format of a chart; choose .html, .png, .svg or .json")
    if kind == "html":
        write_page(path, title, [Section("", charts=[Figure(chart, caption)])])
        return
    with replacing(path) as temporary:
        styled(chart).save(str(temporary), format=kind, scale_factor=2 if kind == "png" else 1)


def save_spec(spec: Mapping[str, Any], path: Path) -> None:
    """Write what `spec_of` gave as .png (twice the size) or .svg."""
    import vl_convert

    version = spec["$schema"].rpartition("/")[2].removeprefix("v").rpartition(".json")[0]
    release = ".".join(version.split(".")[:2])
    with replacing(path) as temporary:
        if path.suffix == ".png":
            temporary.write_bytes(vl_convert.vegalite_to_png(dict(spec), vl_version=release, scale=2))
        else:
            temporary.write_text(vl_convert.vegalite_to_svg(dict(spec), vl_version=release), encoding="utf-8")
