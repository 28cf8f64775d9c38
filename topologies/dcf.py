# SPDX-License-Identifier: Apache-2.0
"""What contention costs a cell of 802.11g: the more stations have something to send, the less all of them carry.

    python -m topologies.dcf

prints the table below. Who transmits at the same time collides; each station's rate adaptation takes that for a bad
channel and goes to lower rates, at which frames take many times as long. Sources: the DCF and its OFDM PHY: IEEE Std
802.11-2020, sections 10.3 and 18; its saturation: Bianchi, "Performance Analysis of the IEEE 802.11 DCF", IEEE JSAC
18(3), 2000; ARF, the rate adaptation: Kamerman, Monteban, "WaveLAN-II", Bell Labs Technical Journal 2(3), 1997; what
collisions make of it: Kim et al., "CARA", IEEE INFOCOM 2006.
"""

import math
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
MOST = 10  # stations

# (stations with something to send, whether the access point has TCP ACKs): payload of all (Mb/s), its frames per second
SATURATION = {
    (1, False): (29.44, 0.0),
    (2, False): (28.8, 0.0),
    (3, False): (9.26, 0.0),
    (4, False): (5.38, 0.0),
    (5, False): (4.78, 0.0),
    (6, False): (4.6, 0.0),
    (7, False): (4.45, 0.0),
    (8, False): (4.37, 0.0),
    (9, False): (4.28, 0.0),
    (10, False): (4.21, 0.0),
    (1, True): (19.97, 1724.8),
    (2, True): (8.71, 369.8),
    (3, True): (5.0, 142.8),
    (4, True): (4.49, 98.2),
    (5, True): (4.36, 74.5),
    (6, True): (4.25, 58.3),
    (7, True): (4.22, 46.7),
    (8, True): (4.12, 46.4),
    (9, True): (4.06, 41.7),
    (10, True): (4.04, 33.0),
}


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
    """Of a frame of the MAC at a rate in Mb/s (s)."""
    return PREAMBLE + EXTENSION + 4e-6 * math.ceil((22 + 8 * octets) / (4 * rate))


def saturation(stations: int, acks: bool, seconds: float = 120.0, seed: int = 1) -> tuple[float, float]:
    """The payload that `stations` carry together (Mb/s), and the frames per second of an access point beside them that
    always has TCP ACKs to send, if it has `acks`."""
    random = Random(seed)
    senders = [_Sender(DATA) for _ in range(stations)] + [_Sender(ACK)] * acks
    for sender in senders:
        sender.backoff = random.randrange(CW_MIN + 1)
    now = 0.0
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
    payload = sum(sender.sent for sender in senders[:stations]) * PAYLOAD * 8 / now / 1e6
    return round(payload, 2), round(senders[-1].sent / now, 1) if acks else 0.0


if __name__ == "__main__":
    for waiting in (False, True):
        for number in range(1, MOST + 1):
            print(f"    ({number}, {waiting}): {saturation(number, waiting)},")
