# SPDX-License-Identifier: Apache-2.0
"""Cost of contention in a cell of 802.11g: the more stations have something to send, the less all of them carry.

    python -m accesspoint.topologies.links.dcf

prints the capacity that is left in the long run. Stations that transmit at the same time collide; each station's rate
adaptation takes that for a bad channel and goes to lower rates, at which frames take many times as long. Sources: the
DCF and its OFDM PHY: IEEE Std 802.11-2020, sections 10.3 and 18; its saturation: Bianchi, "Performance Analysis of the
IEEE 802.11 DCF", IEEE JSAC 18(3), 2000; ARF, the rate adaptation: Kamerman, Monteban, "WaveLAN-II", Bell Labs Technical
Journal 2(3), 1997; its behaviour under collisions: Kim et al., "CARA", IEEE INFOCOM 2006.
"""

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass
from random import Random

SLOT, SIFS = 9e-6, 10e-6  # s
DIFS = SIFS + 2 * SLOT
CW_MIN, CW_MAX = 15, 1023
RETRIES = 7
PREAMBLE, EXTENSION = 20e-6, 6e-6  # s
RATES = (6, 9, 12, 18, 24, 36, 48, 54)  # Mb/s
CONTROL = (6, 6, 12, 12, 24, 24, 24, 24)  # Mb/s, of the MAC's ACK after each of them
MAC_ACK, MAC_HEADER = 14, 36  # octets: QoS data with LLC and FCS, without Ethernet's header
UP_AFTER, DOWN_AFTER = 10, 2  # frames in a row, of ARF
DATA, ACK, PAYLOAD = 1500, 52, 1448  # octets of IP, with TCP timestamps; of a full segment's payload
MAX_STATIONS = 10


@dataclass
class _Sender:
    octets: int
    window: int = CW_MIN
    backoff: int = 0
    rate: int = len(RATES) - 1
    tries: int = 0
    good: int = 0
    bad: int = 0
    trial: bool = False  # the first frame at a higher rate
    sent: int = 0

    def on_air(self) -> float:
        return airtime(self.octets + MAC_HEADER, RATES[self.rate])

    def succeed(self) -> None:
        self.sent += 1
        self.window, self.tries, self.bad, self.trial = CW_MIN, 0, 0, False
        self.good += 1
        if self.good >= UP_AFTER and self.rate + 1 < len(RATES):
            self.rate, self.good, self.trial = self.rate + 1, 0, True

    def fail(self) -> None:
        self.good, self.bad, self.tries = 0, self.bad + 1, self.tries + 1
        if self.rate and (self.trial or self.bad >= DOWN_AFTER):
            self.rate, self.bad = self.rate - 1, 0
        self.trial = False
        self.window = min(CW_MAX, 2 * self.window + 1)
        if self.tries == RETRIES:
            self.window, self.tries = CW_MIN, 0


def airtime(octets: int, rate: int) -> float:
    """Return the airtime of a frame of the MAC at a rate in Mb/s (s)."""
    return PREAMBLE + EXTENSION + 4e-6 * math.ceil((22 + 8 * octets) / (4 * rate))


class Cell:
    """Stations, each with full frames, and an access point with TCP ACKs. Rate adaptation keeps its state between
    calls."""

    def __init__(self, stations: int, seed: int = 1) -> None:
        self._random = Random(seed)
        self._stations = [_Sender(DATA) for _ in range(stations)]
        self._access_point = _Sender(ACK)
        for sender in (*self._stations, self._access_point):
            sender.backoff = self._random.randrange(CW_MIN + 1)
        self._ahead = 0.0  # s that the last frame took beyond the time to pass

    def contend(self, stations: Collection[int], acks: bool, seconds: float) -> tuple[int, int]:
        """Lets time pass in which these stations, from 0 on, and the access point, if it has `acks`, always have
        something to send: one of them must. Returns how many frames the stations get through, and the access point."""
        senders = [self._stations[station] for station in stations] + [self._access_point] * acks
        random, now = self._random, self._ahead
        before = sum(sender.sent for sender in senders), self._access_point.sent
        while now < seconds:
            slots = min(sender.backoff for sender in senders)
            transmitting = [sender for sender in senders if sender.backoff == slots]
            now += DIFS + slots * SLOT + max(sender.on_air() for sender in transmitting) + SIFS
            for sender in senders:
                sender.backoff -= slots
            alone = len(transmitting) == 1
            answer = CONTROL[transmitting[0].rate] if alone else RATES[0]
            now += airtime(MAC_ACK, answer)
            for sender in transmitting:
                sender.succeed() if alone else sender.fail()
                sender.backoff = random.randrange(sender.window + 1)
        self._ahead = now - seconds
        mine = self._access_point.sent - before[1]
        return sum(sender.sent for sender in senders) - before[0] - mine, mine


@functools.cache
def saturation(stations: int, acks: bool, seconds: float = 120.0) -> tuple[float, float]:
    """Return the payload that `stations` carry together in the long run (Mb/s), and the frames per second of an access
    point that always has TCP ACKs to send to them, if it has `acks`."""
    data, answers = Cell(stations).contend(range(stations), acks, seconds)
    return round(data * PAYLOAD * 8 / seconds / 1e6, 2), round(answers / seconds, 1)


if __name__ == "__main__":
    print("stations  ACKs waiting  payload, Mb/s  frames of ACKs/s")
    for waiting in (False, True):
        for number in range(1, MAX_STATIONS + 1):
            mbit, frames = saturation(number, waiting)
            print(f"{number:8} {'yes' if waiting else 'no':>12} {mbit:14} {frames:17}")
