# SPDX-License-Identifier: Apache-2.0
"""One cell of 802.11g that terminals upload through, as paper 002 describes it, whose capacity depends on who has
something to send: accesspoint.topologies.links.dcf, acted out on the access point's links.

Every station, the access point among them, gets the same number of frames through ("even sending opportunity", paper
004, section II.C).
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.scenes.tcp_info import queue_request, waiting
from accesspoint.topologies.links.dcf import ACK, DATA, MAX_STATIONS, PAYLOAD, Cell, saturation
from accesspoint.topologies.links.profiles import LinkProfile

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

BANDWIDTH = 19.0  # Mb/s of payload of one station that has the cell to itself: BW_max of paper 002
FRAME = 1514  # octets, with TCP timestamps
PERIOD = 0.04  # s; a cell takes some times as long to come down
ETHERNET = 14  # octets of a frame beside those of IP
LOOKS = 8  # in a period, at who sends
HISTORY = 500 * LOOKS  # looks: longer than any packet waits
DIFFERENCES = (
    "terminals are Linux hosts of today (SACK, RACK, ACKs of two segments), not Android phones of 2012",
    "the cost of contention is simulated outside of the lab (topologies/links/dcf.py), with ARF, which lowers the "
    "rate after two failures in a row, as the rate adaptation of all: that of the paper's devices is not known",
    "stations' own queues are in front of the access point's uplink, where the access point can mark them",
)
"""Differences to real cells, for the pages."""


def cell(terminals: int, rtt: float, buffer: int = 256, upload_queue: int = 1000) -> LinkProfile:
    """The cell with that many terminals as its controller knows it. rtt: of the wired side (s). buffer: of the access
    point, in packets.

    Its uplink carries the least that it may come to: an access point that expects more takes the standing queue of a
    cell that carries less for an empty one (queue_estimate). Its ACKs get 1/(n+1) of the frames, where one
    ACK for two data packets (RFC 5681, section 4.2) needs a third of them.
    """
    least, _ = saturation(MAX_STATIONS, acks=True, seconds=20)
    acks = BANDWIDTH * 1e6 / 8 / PAYLOAD * 3 / 2 / (terminals + 1)  # frames/s
    return LinkProfile(
        "802.11g", round(acks * (ACK + ETHERNET) * 8), round(least * 1e6 * FRAME / PAYLOAD),
        rtt=rtt, down_limit=buffer, up_limit=upload_queue, shared=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Contention:
    """Sets the rates of the access point's links by which stations have a packet in its uplink queue, and by whether it
    has ACKs of its own to send: a simulated cell lives through the same. Samples `contending`, 25 times a second.

    What stations would hold back waits in front of the access point's uplink here, so a station contends when packets
    of its own are among those that wait there.
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
            queues = [queue_request(name) for name in (uplink, radio)]
            port = "/qos/scheduler-policies/scheduler-policy[name={}]/schedulers/scheduler[sequence=0]"
            cir = [GNMIPath(f"{port.format(name)}/one-rate-two-color/config/cir").path for name in (uplink, radio)]
            senders = Senders(lab.net["air"], self.terminals)
            cell, random = Cell(self.terminals, stage.seed), Random(stage.seed)
            pause = threading.Event()
            while not pause.wait(PERIOD / LOOKS):
                if senders.look() % LOOKS:
                    continue
                data, acks = (waiting(stub, request) for request in queues)
                contending = contenders(senders.behind(data), random)
                stage.sample(stage.now(), "contending", len(contending) + (acks > 0))
                request = gnmi.SetRequest()
                for path, bits in zip(cir, link_rates(cell, contending or [senders.latest], acks > 0), strict=True):
                    request.update.add(path=path).val.uint_val = bits
                stub.Set(request)


def link_rates(cell: Cell, contending: Collection[int], acks: bool) -> tuple[int, int]:
    """Rates of the uplink and of the way to the stations (bit/s), while these stations contend for one more period."""
    frames = max(1, cell.contend(contending, acks, PERIOD)[0]) / PERIOD
    # Every station gets the same number of frames through, so the access point gets as many as one of the others. Its
    # own would be too few to count.
    return round(frames * (DATA + ETHERNET) * 8), round(frames / len(contending) * (ACK + ETHERNET) * 8)


class Senders:
    """Senders of the packets that wait in a queue in order of arrival."""

    def __init__(self, air: Any, terminals: int) -> None:
        self._file = Path(f"/proc/{air.pid}/net/dev")
        self._names = {f"air-eth{number}": number - 1 for number in range(1, terminals + 1)}
        self._seen = deque([self._read()], HISTORY)
        self._looks = 0
        self.latest = 0
        """The station that was the last to send."""

    def _read(self) -> list[int]:
        # proc(5) /proc/net/dev: received bytes, packets
        counts = [0] * len(self._names)
        for line in self._file.read_text().splitlines()[2:]:
            name, _, fields = line.partition(":")
            if (place := self._names.get(name.strip())) is not None:
                counts[place] = int(fields.split()[1])
        return counts

    def look(self) -> int:
        """Read the stations' counters of sent packets. Returns the number of looks so far."""
        before = self._seen[-1]
        self._seen.append(self._read())
        sent = [after - earlier for after, earlier in zip(self._seen[-1], before, strict=True)]
        if any(sent):
            self.latest = sent.index(max(sent))
        self._looks += 1
        return self._looks

    def behind(self, waiting: int) -> list[int]:
        """Number of packets of each station among the last `waiting` that came before the last look."""
        now = self._seen[-1]
        arrived = sum(now)
        before = next((then for then in reversed(self._seen) if arrived - sum(then) >= waiting), self._seen[0])
        return [after - earlier for after, earlier in zip(now, before, strict=True)]


def contenders(waiting: Sequence[int], random: Random) -> list[int]:
    """The stations that contend now, of those with so many packets each in one queue, in which real ones would wait
    apart.

    Stations take turns. While n of them get rid of W packets, each has W/n turns, and one with fewer packets contends
    in some of them only.
    """
    present = [station for station, packets in enumerate(waiting) if packets]
    together = sum(waiting)
    return [station for station in present if random.random() * together < waiting[station] * len(present)]
