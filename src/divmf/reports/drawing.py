"""A chart as an object of its own: a notebook shows it without a network, and it can be saved."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divmf.ranking.curve import Curve, Point


@dataclass(frozen=True, eq=False, repr=False)
class Drawing:
    """A chart of altair's in the house's theme."""

    chart: Any
    about: str
    title: str = "divmf"
    caption: str = ""

    def __repr__(self) -> str:
        return f"Drawing({self.about})"

    def _repr_svg_(self) -> str:
        import vl_convert

        from divmf.reports.charts import spec_of

        return str(vl_convert.vegalite_to_svg(spec_of(self.chart)))

    def save(self, path: str | Path) -> None:
        """Write the chart by its suffix: .html (one file, works offline), .png, .svg or .json."""
        from divmf.reports.chart_files import save_chart

        save_chart(self.chart, path, self.title, self.caption)


def draw_curve(
    curve: Curve, name: str, k: int | None = None, picked: Point | None = None, base: str = "model"
) -> Drawing:
    """nDCG against coverage, entropy and Gini on test; picked gets a ring; base: what the curve begins with."""
    from divmf.reports.charts import curve_chart

    chart = curve_chart({name: curve}, k=k, picked=picked, base=base)
    caption = (
        "Every point is a finished set of lists, measured on the test items: up is more accurate, right is more"
        f" diverse. The diamond is the start of the curve ({base})."
    )
    if picked is not None:
        ndcg = "nDCG" if k is None else f"nDCG@{k}"
        caption += (
            f" The ring is the point picked by its numbers on validation: {picked.name}, with a validation {ndcg} of"
            f" {picked.value('valid', 'ndcg'):.4f} and a validation Gini index of {picked.value('valid', 'gini'):.4f}."
        )
    return Drawing(chart, f"{name}: {len(curve.operating)} points", "Accuracy against diversity", caption)
