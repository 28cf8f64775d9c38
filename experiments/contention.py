# SPDX-License-Identifier: Apache-2.0
"""A cell whose capacity depends on who has something to send: topologies.dcf, acted out on the access point's links."""

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topologies.dcf import ACK, DATA, PAYLOAD, SATURATION

if TYPE_CHECKING:
    from experiments.stage import Stage

PERIOD = 0.04  # s; rate adaptation takes about twice as long from one end of the rates to the other
ETHERNET = 14  # octets of a frame beside those of IP
HISTORY = 500  # periods: longer than any packet waits
CELL = (
    "what contention costs the cell is computed (topologies.dcf), with ARF as the rate adaptation of all: that of the "
    "paper's devices is not known",
    "stations' own queues stand in front of the access point's uplink, where the access point can mark them",
)
"""What is different from real cells, for the pages."""


@dataclass(frozen=True)
class Contention:
    """Sets the rates of the access point's links by the number of stations that have a packet in its uplink queue, and
    by whether it has ACKs of its own to send. Samples `contending`, 25 times a second.

    What stations would hold back waits in front of the access point's uplink here, so a station is one of them when a
    packet of its own is among those that wait there.
    """

    terminals: int

    def prepare(self, stage: "Stage") -> None:
        threading.Thread(target=self._run, args=(stage,), daemon=True).start()

    def _run(self, stage: "Stage") -> None:
        try:
            self._follow(stage)
        except Exception as error:  # whatever it is: without contention this is no such cell
            if stage.now() < stage.seconds:
                stage.problems.append(f"the cell's contention ended: {error}")

    def _follow(self, stage: "Stage") -> None:
        import grpc
        from finsy import GNMIPath
        from finsy.proto import gnmi, gnmi_grpc

        lab = stage.lab
        radio, uplink = (lab.access_point.wired[port].name for port in (1, 2))
        with grpc.insecure_channel(lab.access_point.grpc) as channel:
            stub = gnmi_grpc.gNMIStub(channel)
            queues = "/qos/interfaces/interface[interface-id={}]/output/queues/queue[name=*]/state/queue-len-pkts"
            waiting = [
                gnmi.GetRequest(path=[GNMIPath(queues.format(name)).path], encoding=gnmi.PROTO)
                for name in (uplink, radio)
            ]
            port = "/qos/scheduler-policies/scheduler-policy[name={}]/schedulers/scheduler[sequence=0]"
            cir = [GNMIPath(f"{port.format(name)}/one-rate-two-color/config/cir").path for name in (uplink, radio)]
            senders = Senders(lab.net["air"], self.terminals)
            pause = threading.Event()
            last = None
            while not pause.wait(PERIOD):
                data, acks = (
                    sum(u.val.uint_val for n in stub.Get(request).notification for u in n.update) for request in waiting
                )
                contending = senders.behind(data)
                stage.sample(stage.now(), "contending", contending + (acks > 0))
                rates = link_rates(max(1, contending), acks > 0)
                if rates != last:
                    request = gnmi.SetRequest()
                    for path, bits in zip(cir, rates, strict=True):
                        request.update.add(path=path).val.uint_val = bits
                    stub.Set(request)
                    last = rates


def link_rates(contending: int, acks: bool) -> tuple[int, int]:
    """Of the uplink and of the way to the stations (bit/s): what data gets, and TCP ACKs."""
    mbit, frames = SATURATION[contending, acks]
    if not acks:
        frames = SATURATION[contending, True][1]
    return round(mbit * 1e6 * (DATA + ETHERNET) / PAYLOAD), round(frames * (ACK + ETHERNET) * 8)


class Senders:
    """Who has sent the packets that wait in a queue in order of arrival."""

    def __init__(self, air: Any, terminals: int) -> None:
        self._file = Path(f"/proc/{air.pid}/net/dev")
        self._names = {f"air-eth{number}": number - 1 for number in range(1, terminals + 1)}
        self._seen: deque[list[int]] = deque([self._read()], HISTORY)

    def _read(self) -> list[int]:
        # proc(5) /proc/net/dev: received bytes, packets
        counts = [0] * len(self._names)
        for line in self._file.read_text().splitlines()[2:]:
            name, _, fields = line.partition(":")
            if (place := self._names.get(name.strip())) is not None:
                counts[place] = int(fields.split()[1])
        return counts

    def behind(self, waiting: int) -> int:
        """How many stations have a packet among the last `waiting` that came."""
        now = self._read()
        self._seen.append(now)
        arrived = sum(now)
        before = next((then for then in reversed(self._seen) if arrived - sum(then) >= waiting), self._seen[0])
        return min(waiting, sum(after > earlier for after, earlier in zip(now, before, strict=True)))
