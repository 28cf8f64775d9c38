# SPDX-License-Identifier: Apache-2.0
"""Prometheus: what was last seen of the access points and of who asks, in base units.

What percentiles are asked of is a histogram: those of several controllers can be added.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from .observation import BASE, MEASURES, TICK_BOUNDS, Measure, Observation

Family = GaugeMetricFamily | CounterMetricFamily

OTHERS: dict[str, tuple[type[Family], str, str]] = {
    "ready": (GaugeMetricFamily, "ap_ready", "1 when the access point is under control"),
    "link": (GaugeMetricFamily, "ap_link_active", "1 when something left within 10 s"),
    "mistaken": (
        GaugeMetricFamily, "ap_capacity_mistaken", "1 when the link carries something else than is configured"
    ),
    "stations_refused": (CounterMetricFamily, "ap_stations_refused", "Addresses not learned"),
    "flows_refused": (CounterMetricFamily, "ap_flows_refused", "Flows not learned"),
    "messages_lost": (CounterMetricFamily, "ap_messages_lost", "What the switch said and came to nothing"),
}  # fmt: skip
"""What is no single number in `MEASURES`."""

REQUEST_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Of a request's, in seconds."""


class Requests:
    """What was asked of the API and became of it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "controller_request_seconds",
            "From a request to the beginning of its answer",
            ["method", "status"],
            buckets=REQUEST_BOUNDS,
            registry=registry,
        )
        self.refused = Counter(
            "controller_refused_requests",
            "Requests refused before they were looked at: no valid token (token, login), too many (rate, streams)",
            ["reason"],
            registry=registry,
        )
        for reason in ("token", "login", "rate", "streams"):
            self.refused.labels(reason)


class Collector(PrometheusCollector):
    """Tells what is there when Prometheus asks.

    Args:
        seen: the access points.
        lost: samples of history that were lost, and connections that were ended for what they took.
    """

    def __init__(
        self,
        seen: Callable[[], Iterable[Observation]],
        lost: Callable[[], tuple[int, int]],
    ) -> None:
        self._seen = seen
        self._lost = lost

    def collect(self) -> Iterator[Metric]:
        """The metrics of all access points."""
        labels = {"access_point": ["access_point"], "port": ["access_point", "port", "role"]}
        labels["class"] = [*labels["port"], "class_id"]
        families: dict[Measure, Family] = {
            measure: (CounterMetricFamily if measure.counter else GaugeMetricFamily)(
                measure.metric, measure.text, labels=labels[measure.level]
            )
            for measure in MEASURES
            if measure.metric
        }
        of = {"ready": "access_point", "link": "port", "mistaken": "port"}
        others: dict[str, Family] = {
            name: family(metric, text, labels=labels[of[name]] if name in of else ["access_point", "reason"])
            for name, (family, metric, text) in OTHERS.items()
        }
        took = HistogramMetricFamily("ap_tick_seconds", "How long ticks took", labels=labels["access_point"])

        def take(level: str, values: dict[str, Any], *place: str) -> None:
            for measure, family in families.items():
                if measure.level == level and (value := values[measure.name]) is not None:
                    family.add_metric(place, value / BASE.get(measure.unit, 1.0))

        for seen in self._seen():
            name = seen["name"]
            take("access_point", seen, name)
            others["ready"].add_metric([name], float(seen["state"] == "ready"))
            for refused in ("stations_refused", "flows_refused", "messages_lost"):
                for reason, number in seen[refused].items():
                    others[refused].add_metric([name, reason], number)
            bounds = zip([*map(str, TICK_BOUNDS), "+Inf"], accumulate(seen["tick_counts"]), strict=True)
            took.add_metric([name], [*bounds], seen["tick_seconds"])
            for entry in seen["ports"]:
                port = name, str(entry["port"]), entry["role"]
                take("port", entry, *port)
                others["link"].add_metric(port, float(entry["link"] == "active"))
                others["mistaken"].add_metric(port, float(entry["capacity_problem"] is not None))
                for of_class in entry["classes"]:
                    take("class", of_class, *port, str(of_class["class_id"]))
        yield from _of_stations(self._seen())
        yield from (*families.values(), *others.values(), took)
        samples, connections = self._lost()
        yield CounterMetricFamily(
            "controller_lost_samples", "Samples of history lost, as the database was away", samples
        )
        yield CounterMetricFamily("controller_ended_connections", "Connections ended for what they took", connections)


def _of_stations(seen: Iterable[Observation]) -> Iterator[Metric]:
    """What stations used that something is said of: a few, while anybody may make up addresses."""
    place = ["access_point", "station"]
    used = {
        unit: CounterMetricFamily(f"ap_station_{unit}", f"{unit.title()} of its flows", labels=[*place, "direction"])
        for unit in ("packets", "bytes")
    }
    info = GaugeMetricFamily("ap_station_info", "What a station is called", labels=[*place, "name"])
    for of in seen:
        for station in of["stations_named"]:
            labels = [of["name"], station["address"]]
            info.add_metric([*labels, station["name"]], 1)
            for unit, family in used.items():
                for way in ("up", "down"):
                    family.add_metric([*labels, way], station[f"{unit}_{way}"])
    yield from (*used.values(), info)
