"""A chart as an object of its own: a notebook shows it without a network, and it can be saved."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divmf.ranking.curve import Curve


@dataclass(frozen=True, eq=False, repr=False)
class Drawing:
    """A chart of altair's in the house's theme."""

    chart: Any
    about: str

    def __repr__(self) -> str:
        return f"Drawing({self.about})"

    def _repr_svg_(self) -> str:
        import vl_convert

        from divmf.reports.charts import spec_of

        return str(vl_convert.vegalite_to_svg(spec_of(self.chart)))

    def save(self, path: str | Path) -> None:
        """Write the chart by its suffix: .html (one file, works offline), .png, .svg or .json."""
        from divmf.reports.chart_files import save_chart

        save_chart(self.chart, path)


def draw_curve(curve: Curve, name: str, k: int | None = None) -> Drawing:
    """nDCG against coverage, entropy and Gini on test."""
    from divmf.reports.charts import curve_chart

    return Drawing(curve_chart({name: curve}, k=k), f"{name}: {len(curve.operating)} points")
