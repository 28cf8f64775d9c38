# SPDX-License-Identifier: Apache-2.0
"""Prometheus: what the loop knows, as gauges and counters."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from .access_point import AccessPoint
from .connection import State


class Collector(PrometheusCollector):
    """Reads the access points when Prometheus asks."""

    def __init__(self, access_points: Mapping[str, AccessPoint]) -> None:
        self._access_points = access_points

    def collect(self) -> Iterator[Metric]:
        """The metrics of all access points."""
        by_ap = ["access_point"]
        by_port = ["access_point", "port"]
        by_class = ["access_point", "port", "class_id"]
        ready = GaugeMetricFamily("ap_ready", "1 when the access point is under control", labels=by_ap)
        flows = GaugeMetricFamily("ap_flows", "Known flows", labels=by_ap)
        stations = GaugeMetricFamily("ap_stations", "Known MAC addresses", labels=by_ap)
        ticks = CounterMetricFamily("ap_ticks", "Ticks of the loop", labels=by_ap)
        late = CounterMetricFamily("ap_late_ticks", "Ticks that started late", labels=by_ap)
        delay = GaugeMetricFamily("ap_queue_delay_seconds", "Delay of the port's queue", labels=by_port)
        queue = GaugeMetricFamily("ap_queue_packets", "Packets in the port's queue", labels=by_port)
        device = GaugeMetricFamily("ap_feedback_device", "Device term, a probability", labels=by_port)
        class_term = GaugeMetricFamily("ap_feedback_class", "Class term, a probability", labels=by_class)
        sent = CounterMetricFamily("ap_sent_bytes", "Bytes that left through the port", labels=by_class)
        filtered = CounterMetricFamily("ap_filtered_packets", "Superseded ACKs not sent", labels=by_class)
        for name, ap in self._access_points.items():
            ready.add_metric([name], float(ap.connection.state == State.READY))
            flows.add_metric([name], len(ap.flows.by_key))
            stations.add_metric([name], len(ap.stations.by_mac))
            ticks.add_metric([name], ap.loop.ticks)
            late.add_metric([name], ap.loop.late)
            for number, state in ap.loop.ports.items():
                port = str(number)
                delay.add_metric([name, port], state.estimate.delay)
                queue.add_metric([name, port], state.estimate.packets)
                device.add_metric([name, port], state.feedback)
                for class_id, volume in state.volumes.items():
                    labels = [name, port, str(class_id)]
                    class_term.add_metric(labels, state.class_feedback.get(class_id, 0.0))
                    sent.add_metric(labels, volume.sent_bytes)
                    filtered.add_metric(labels, volume.filtered_packets)
        yield from (ready, flows, stations, ticks, late, delay, queue, device, class_term, sent, filtered)
