"""Pages: one self-contained HTML file each, which works offline, in light and dark, on a phone and on paper."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from divmf.data.split import Split
from divmf.engine.files import replacing
from divmf.engine.versions import versions
from divmf.ranking.curve import Curve, Point
from divmf.ranking.groups import Groups
from divmf.ranking.lists import TopK
from divmf.reports.colours import PAIRS
from divmf.reports.section import Section, Text, cell, command_text


def write_page(
    path: str | Path, title: str, sections: Sequence[Section], footer: Sequence[Text] = (), subtitle: Text = ""
) -> None:
    """Write the sections as one HTML file; what is not Markup is escaped."""
    path = Path(path)
    environment = Environment(
        loader=PackageLoader("divmf", "reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": cell, "spec": spec}
    page = environment.get_template("page.html.jinja").render(
        title=title, subtitle=subtitle, sections=sections, footer=footer, pairs=PAIRS, bundle=bundle()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def run_report(
    path: str | Path,
    curve: Curve,
    picked: Point,
    lists: Mapping[str, TopK],
    split: Split,
    k: int,
    command: str,
    extra_curves: Mapping[str, Curve] | None = None,
    *,
    valid_lists: Mapping[str, TopK] | None = None,
    titles: Mapping[Any, str] | None = None,
    run: str | Path = "RUN",
    groups: Groups | None = None,
    more: Sequence[Section] = (),
) -> None:
    """What diversifying did, for readers who do not know the method.

    lists         the k-lists on test by name: first the model's own, then those of the method that made the curve,
                  then others to compare
    extra_curves  other methods' curves, drawn and tabulated beside it, the first four in colour
    valid_lists   as lists, on validation: gives the validation numbers their intervals
    titles        what people call an item, by its id
    run           the run folder, for the commands the page proposes
    groups        of items, such as sellers: what the lists give to each
    more          further sections, before the training and the protocol
    """
    from divmf.reports.groups import groups_section
    from divmf.reports.story import Story, sections

    story = Story(curve, picked, lists, split, k, extra_curves or {}, valid_lists or {}, titles or {}, str(run))
    if groups is not None:
        more = [groups_section(groups, story.counts, split.train.popularity), *more]
    size = (
        f"{split.n_users:,} users, {split.n_items:,} items, {sum(map(len, (split.train, split.valid, split.test))):,}"
    )
    write_page(
        path,
        "A fair chance for the whole catalog",
        sections(story, more),
        made_by(command),
        f"What diversifying the recommendations does: {size} interactions, lists of {k}.",
    )


def made_by(command: str) -> list[Text]:
    """The footer: the command and the versions that made a page."""
    made = versions() | {name: version(name) for name in ("altair", "vl-convert-python")}
    return [
        Markup("Made by {}").format(command_text(command)),
        ", ".join(f"{name} {number}" for name, number in made.items()),
    ]


def spec(chart: Any) -> Markup:
    """A chart, or what `spec_of` made of it, as JSON that is safe inside a script element."""
    from divmf.reports.charts import spec_of

    text = json.dumps(chart if isinstance(chart, dict) else spec_of(chart), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


@cache
def bundle() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script, so that a page needs nothing from elsewhere."""
    import vl_convert

    return Markup(
        vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        .replace("</script", "<\\/script")
        .replace("<!--", "<\\!--")
    )
