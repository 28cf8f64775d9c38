# SPDX-License-Identifier: Apache-2.0
"""Prometheus: what was last seen of the access points and of who asks, in base units.

What percentiles are asked of is a histogram: those of several controllers can be added.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from .observation import TICK_BOUNDS, Observation

COUNTERS = {
    "arrived_bytes": "Bytes that joined the port's queue",
    "sent_bytes": "Bytes that left through the port",
    "sent_packets": "Packets that left through the port",
    "filtered_packets": "Superseded ACKs not sent",
    "marked_packets": "Packets that got CE",
    "dropped_packets": "Packets dropped by feedback",
    "refused_packets": "Packets dropped by the gate",
}


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
        by_ap = ["access_point"]
        by_port = ["access_point", "port", "role"]
        by_class = [*by_port, "class_id"]
        ready = GaugeMetricFamily("ap_ready", "1 when the access point is under control", labels=by_ap)
        flows = GaugeMetricFamily("ap_flows", "Known flows", labels=by_ap)
        flows_free = GaugeMetricFamily("ap_flows_free", "Flows that there is room for", labels=by_ap)
        stations = GaugeMetricFamily("ap_stations", "Known MAC addresses", labels=by_ap)
        by_reason = [*by_ap, "reason"]
        stations_refused = CounterMetricFamily("ap_stations_refused", "Addresses not learned", labels=by_reason)
        flows_refused = CounterMetricFamily("ap_flows_refused", "Flows not learned", labels=by_reason)
        ticks = CounterMetricFamily("ap_ticks", "Ticks of the loop", labels=by_ap)
        late = CounterMetricFamily("ap_late_ticks", "Ticks that began late", labels=by_ap)
        missed = CounterMetricFamily("ap_missed_ticks", "Ticks that were left out", labels=by_ap)
        took = HistogramMetricFamily("ap_tick_seconds", "How long ticks took", labels=by_ap)
        delay = GaugeMetricFamily("ap_queue_delay_seconds", "Delay of the port's queue", labels=by_port)
        target = GaugeMetricFamily("ap_queue_target_seconds", "Delay that feedback aims at", labels=by_port)
        queue = GaugeMetricFamily("ap_queue_packets", "Packets in the port's queue", labels=by_port)
        active = GaugeMetricFamily("ap_active_flows", "Flows with traffic through the port", labels=by_port)
        link = GaugeMetricFamily("ap_link_active", "1 when something left within 10 s", labels=by_port)
        capacity = GaugeMetricFamily("ap_capacity_bytes_per_second", "What the port is regulated by", labels=by_port)
        learned = GaugeMetricFamily(
            "ap_capacity_learned_bytes_per_second", "What left while the queue was never empty", labels=by_port
        )
        mistaken = GaugeMetricFamily(
            "ap_capacity_mistaken", "1 when the link carries something else than is configured", labels=by_port
        )
        device = GaugeMetricFamily("ap_device_feedback_ratio", "Device term, a probability", labels=by_port)
        largest = GaugeMetricFamily("ap_flow_feedback_ratio", "Largest flow term, a probability", labels=by_port)
        class_term = GaugeMetricFamily("ap_class_feedback_ratio", "Class term, a probability", labels=by_class)
        counters = {
            column: CounterMetricFamily(f"ap_{column}", text, labels=by_class) for column, text in COUNTERS.items()
        }
        for seen in self._seen():
            name = seen["name"]
            ready.add_metric([name], float(seen["state"] == "ready"))
            flows.add_metric([name], seen["flows"])
            flows_free.add_metric([name], seen["flows_free"])
            stations.add_metric([name], seen["stations"])
            for refused, by_its_reason in (
                (stations_refused, seen["stations_refused"]),
                (flows_refused, seen["flows_refused"]),
            ):
                for reason, number in by_its_reason.items():
                    refused.add_metric([name, reason], number)
            ticks.add_metric([name], seen["ticks"])
            late.add_metric([name], seen["late"])
            missed.add_metric([name], seen["missed"])
            bounds = zip([*map(str, TICK_BOUNDS), "+Inf"], accumulate(seen["tick_counts"]), strict=True)
            took.add_metric([name], [*bounds], seen["tick_seconds"])
            for entry in seen["ports"]:
                port = [name, str(entry["port"]), entry["role"]]
                delay.add_metric(port, entry["delay_ms"] / 1000)
                target.add_metric(port, entry["target_ms"] / 1000)
                queue.add_metric(port, entry["queue_packets"])
                active.add_metric(port, entry["flows_active"])
                link.add_metric(port, float(entry["link"] == "active"))
                for family_of, value in ((capacity, "capacity_used_bps"), (learned, "capacity_learned_bps")):
                    if entry[value] is not None:  # type: ignore[literal-required]
                        family_of.add_metric(port, entry[value] / 8)  # type: ignore[literal-required]
                mistaken.add_metric(port, float(entry["capacity_problem"] is not None))
                device.add_metric(port, entry["device"])
                largest.add_metric(port, entry["largest_flow"])
                for of_class in entry["classes"]:
                    labels = [*port, str(of_class["class_id"])]
                    class_term.add_metric(labels, of_class["feedback"])
                    for column, family in counters.items():
                        family.add_metric(labels, of_class[column])  # type: ignore[literal-required]
        yield from (
            ready,
            flows,
            flows_free,
            flows_refused,
            stations,
            stations_refused,
            ticks,
            late,
            missed,
            took,
        )
        yield from (capacity, learned, mistaken, delay, target, queue, active, link, device, largest, class_term)
        yield from counters.values()
        samples, connections = self._lost()
        yield CounterMetricFamily(
            "controller_lost_samples", "Samples of history lost, as the database was away", samples
        )
        yield CounterMetricFamily("controller_ended_connections", "Connections ended for what they took", connections)
