# SPDX-License-Identifier: Apache-2.0
"""Observations between a flow's ends: TCP's own round trips, and the queue of the uplink."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from finsy.proto import gnmi

    from accesspoint.experiments.lab.stage import Stage

UPLINK = 2  # the access point's port
MIN_SENT = 10_000  # bytes: a connection that has sent less only controls, or has not started
_SENT, _RTT = re.compile(r"\bbytes_sent:(\d+)"), re.compile(r"\brtt:([\d.]+)/")


def round_trip(text: str) -> float | None:
    """Smoothed round trip (ms) of the connection that has sent most, in the output of `ss -tinH`."""
    found = []
    for line in text.splitlines():
        sent, rtt = _SENT.search(line), _RTT.search(line)
        if sent and rtt and int(sent[1]) >= MIN_SENT:
            found.append((int(sent[1]), float(rtt[1])))
    return max(found)[1] if found else None


@dataclass(frozen=True)
class Looks:
    """Samples once a second of the run: `tcp_rtt_ms` of source `download`, the server's connection, and `upload`, the
    first station's; and `queue_packets`, the packets that wait for the uplink. A switch without gNMI has no samples of
    the queue."""

    def prepare(self, stage: "Stage") -> None:
        for second in range(1, int(stage.seconds)):
            stage.at(second / stage.scale, lambda: self._look(stage))

    def _look(self, stage: "Stage") -> None:
        for name, host in (("download", stage.server), ("upload", stage.station(1))):
            if (rtt := round_trip(host.run("ss", "-tinH"))) is not None:
                stage.sample(stage.now(), "tcp_rtt_ms", rtt, source=name)
        if (packets := uplink_queue(stage.lab)) is not None:
            stage.sample(stage.now(), "queue_packets", packets)


def queue_request(port: str) -> "gnmi.GetRequest":
    """Request for the number of packets that wait in a port's queues."""
    from finsy import GNMIPath
    from finsy.proto import gnmi

    path = f"/qos/interfaces/interface[interface-id={port}]/output/queues/queue[name=*]/state/queue-len-pkts"
    return gnmi.GetRequest(path=[GNMIPath(path).path], encoding=gnmi.PROTO)


def waiting(stub: Any, request: "gnmi.GetRequest") -> int:
    return sum(update.val.uint_val for note in stub.Get(request).notification for update in note.update)


def uplink_queue(lab: Any) -> int | None:
    """Number of packets that wait for the uplink; None without gNMI."""
    import grpc
    from finsy.proto import gnmi_grpc

    with grpc.insecure_channel(lab.access_point.grpc) as channel:
        try:
            return waiting(gnmi_grpc.gNMIStub(channel), queue_request(lab.access_point.wired[UPLINK].name))
        except grpc.RpcError:
            return None
