"""The state of a ledger as metrics for Prometheus, read when they are asked for."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from divmf.serve.live import Live


class LedgerGauges(Collector):
    """Exposure as gauges."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def describe(self) -> list[Metric]:
        """Nothing: the names are known when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The ledger as it is now."""
        told = self.live.exposure()
        gauges = {
            "divmf_ledger_requests": ("Pages shown since the store began, by all workers.", told["requests"]),
            "divmf_ledger_items": ("Items in the catalog.", told["items"]),
            "divmf_ledger_coverage": ("Share of the items shown within the last horizons.", told["coverage"]),
            "divmf_ledger_gini": ("Gini index of the showings within the last horizons.", told["gini"]),
            "divmf_ledger_starved_items": ("Items not shown within the last horizons.", told["starved"]["items"]),
            "divmf_ledger_full_items": ("Items at their capacity.", told["full"]),
            "divmf_ledger_drift": ("How far discounts are from the run's, in units of rho.", told["drift"]),
            "divmf_store_waiting": ("Writes that wait for the store.", told["waiting"]),
            "divmf_store_behind_seconds": ("Seconds since the store was last read.", self.live.behind),
        }
        for name, (meaning, value) in gauges.items():
            if value is not None:
                yield GaugeMetricFamily(name, meaning, value=value)
