# SPDX-License-Identifier: Apache-2.0
"""Prometheus: the last observations of access points, and requests, in base units.

Distributions are histograms: those of several controllers can be added.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from .observation import BASE, MEASURES, TICK_BOUNDS, Observation

OTHERS = {
    "ready": ("gauge", "ap_ready", "1 when the access point is under control"),
    "differs": ("gauge", "ap_differs", "1 when its desired revision is not in effect"),
    "link": ("gauge", "ap_link_active", "1 when something left within 10 s"),
    "mistaken": ("gauge", "ap_capacity_mistaken", "1 when the link carries something else than is configured"),
    "stations_refused": ("counter", "ap_stations_refused_total", "Addresses not learned"),
    "flows_refused": ("counter", "ap_flows_refused_total", "Flows not learned"),
    "messages_lost": ("counter", "ap_messages_lost_total", "Dropped messages of the switch"),
    # Only of stations with settings: these are few, while anybody may make up addresses.
    "packets": ("counter", "ap_station_packets_total", "Packets of its flows"),
    "bytes": ("counter", "ap_station_bytes_total", "Bytes of its flows"),
    "info": ("gauge", "ap_station_info", "Names of stations"),
    "lost": ("counter", "controller_lost_samples_total", "Samples of history lost, as the database was away"),
    "ended": ("counter", "controller_ended_connections_total", "Connections ended for what they took"),
}
"""Metrics that are no single number in `MEASURES`: kind, metric, text."""

REQUEST_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bounds of a request's duration, in seconds."""


class Requests:
    """Metrics of requests to the API."""

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
            "Requests rejected before processing: no valid token (token, login), too many (rate, streams)",
            ["reason"],
            registry=registry,
        )
        for reason in ("token", "login", "rate", "streams"):
            self.refused.labels(reason)


def exposition(seen: Sequence[Observation], lost: int, ended: int, differ: Mapping[str, bool]) -> str:
    """Return the metrics of access points in Prometheus' text format, version 0.0.4.

    A thousand access points have a hundred thousand lines of few forms, so this is faster than the library's writer.

    Args:
        seen: the access points.
        lost: samples of history that were lost.
        ended: connections that were ended for what they took.
        differ: whether the desired revision of each access point is not in effect.
    """
    families: list[list[str]] = []

    def family(metric: str, kind: str, text: str) -> list[str]:
        families.append([f"# HELP {metric} {text}\n# TYPE {metric} {kind}\n"])
        return families[-1]

    of_level: dict[str, list[tuple[str, str, float, list[str]]]] = {"access_point": [], "port": [], "class": []}
    for measure in MEASURES:
        if measure.metric:
            metric = measure.metric + "_total" * measure.counter
            lines = family(metric, "counter" if measure.counter else "gauge", measure.text)
            of_level[measure.level].append((measure.name, metric, BASE.get(measure.unit, 1.0), lines))
    others = {name: (metric, family(metric, kind, text)) for name, (kind, metric, text) in OTHERS.items()}
    ticks = family("ap_tick_seconds", "histogram", "How long ticks took")

    def take(level: str, values: dict[str, Any], place: str) -> None:
        for name, metric, base, lines in of_level[level]:
            if (value := values[name]) is not None:
                lines.append(f"{metric}{{{place}}} {value / base}\n")

    def other(name: str, place: str, value: float) -> None:
        metric, lines = others[name]
        lines.append(f"{metric}{{{place}}} {float(value)}\n")

    for ap in seen:
        mine = f'access_point="{_escaped(ap["name"])}"'
        take("access_point", ap, mine)
        other("ready", mine, ap["state"] == "ready")
        for refused in ("stations_refused", "flows_refused", "messages_lost"):
            for reason, number in ap[refused].items():
                other(refused, f'{mine},reason="{_escaped(reason)}"', number)
        counts = [*accumulate(ap["tick_counts"])]
        for bound, count in zip((*TICK_BOUNDS, "+Inf"), counts, strict=True):
            ticks.append(f'ap_tick_seconds_bucket{{{mine},le="{bound}"}} {float(count)}\n')
        ticks.append(f"ap_tick_seconds_count{{{mine}}} {float(counts[-1])}\n")
        ticks.append(f"ap_tick_seconds_sum{{{mine}}} {float(ap['tick_seconds'])}\n")
        for port in ap["ports"]:
            number, role = port["port"], _escaped(port["role"])
            place = f'{mine},port="{number}",role="{role}"'
            take("port", port, place)
            other("link", place, port["link"] == "active")
            other("mistaken", place, port["capacity_problem"] is not None)
            for of_class in port["classes"]:
                take("class", of_class, f'{mine},class_id="{of_class["class_id"]}",port="{number}",role="{role}"')
        for station in ap["stations_named"]:
            place = f'station="{_escaped(station["address"])}"'
            other("info", f'{mine},name="{_escaped(station["name"])}",{place}', 1)
            for unit in ("packets", "bytes"):
                for way in ("up", "down"):
                    other(unit, f'{mine},direction="{way}",{place}', station[f"{unit}_{way}"])
    for name, differs in differ.items():
        other("differs", f'access_point="{_escaped(name)}"', differs)
    for name, number in (("lost", lost), ("ended", ended)):
        metric, lines = others[name]
        lines.append(f"{metric} {float(number)}\n")
    return "".join(line for lines in families for line in lines)


def _escaped(text: str) -> str:
    """Escape a label's value."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
