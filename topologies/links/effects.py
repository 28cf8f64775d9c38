# SPDX-License-Identifier: Apache-2.0
"""Effects of wireless links on packets, as models with a source each: from a seed to a trace that a link replays.

    python -m accesspoint.topologies.links.effects hspa --rate 355kbit --seconds 120 --seed 1 --out hspa.trace

The same seed gives the same trace. docs/effects.md lists models, parameters and sources.
"""

import argparse
import inspect
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random

from accesspoint.topologies.links.profiles import ProfileError, parse_rate
from accesspoint.topologies.links.traces import FRAME_BITS, Trace, TraceError

MAX_SECONDS = 3600.0
Steps = Iterable[tuple[float, float]]

# IEEE Std 802.11-2020: OFDM PHY and EDCA's best effort (AIFSN 3, CWmin 15). Lengths in s, sizes in bytes.
SLOT, SIFS = 9e-6, 16e-6
AIFS, MEAN_BACKOFF = SIFS + 3 * SLOT, 7.5 * SLOT
PREAMBLE, BLOCK_ACK = 36e-6, 32e-6  # HT-mixed with one stream; 32 bytes at 24 Mb/s
MAX_PPDU = 5.484e-3  # aPPDUMaxTime
MAX_AMPDU, MAX_SUBFRAMES = 65_535, 64
SUBFRAME = 1544  # 1500, LLC 8, MAC 26, FCS 4, delimiter 4, to the next multiple of 4
MCS = (1, 2, 3, 4, 6, 8, 9, 10)  # tenths of the rate of HT-MCS 7, for HT-MCS 0 to 7


def aggregation(random: Random, rate: float, seconds: float, *, phy: float = 65e6) -> Iterator[float]:
    """Wi-Fi's bursts: frames arrive an A-MPDU at a time, as many as fit into the longest PPDU, and in between other
    stations have the air. The station that wins it wins again with the same probability.

    rate: what the station gets (bit/s). phy: the rate on the air (bit/s). Sources: IEEE Std 802.11-2020 (A-MPDU,
    EDCA); overheads as in Hoiland-Jorgensen et al., "Ending the Anomaly", USENIX ATC 2017, section 2; access: Bianchi,
    "Performance Analysis of the IEEE 802.11 DCF", IEEE JSAC 18(3), 2000.
    """
    fitting = int((MAX_PPDU - PREAMBLE) * phy / 8 / SUBFRAME)
    frames = max(1, min(fitting, MAX_AMPDU // SUBFRAME, MAX_SUBFRAMES))
    on_air = PREAMBLE + frames * SUBFRAME * 8 / phy + SIFS + BLOCK_ACK
    turn = AIFS + MEAN_BACKOFF + on_air
    others = frames * FRAME_BITS / rate / turn - 1  # turns of others for each own one
    if others < 0:
        most = frames * FRAME_BITS / turn / 1e6
        raise TraceError(f"rate {rate / 1e6:g} Mb/s is more than the {most:.1f} Mb/s of an air of {phy / 1e6:g} Mb/s")
    now = 0.0
    while now < seconds:
        while random.random() < others / (1 + others):
            now += AIFS + random.randrange(16) * SLOT + on_air
        now += AIFS + random.randrange(16) * SLOT + on_air
        yield from [now] * frames


def rate_steps(random: Random, rate: float, seconds: float, *, dwell: float = 1.0) -> Iterator[float]:
    """Rate changes: the link goes up and down the eight rates of HT with one stream, to a neighbour each time.

    rate: of the highest one (bit/s). dwell: mean time at a rate (s; assumed). Sources: the rates: IEEE Std 802.11-2020,
    HT-MCS 0 to 7; the walk: Wang, Moayeri, "Finite-State Markov Channel", IEEE Trans. Veh. Tech. 44(1), 1995.
    """

    def steps() -> Iterator[tuple[float, float]]:
        mcs = len(MCS) - 1
        while True:
            yield random.expovariate(1 / dwell), rate * MCS[mcs] / MCS[-1]
            neighbours = [place for place in (mcs - 1, mcs + 1) if 0 <= place < len(MCS)]
            mcs = neighbours[random.randrange(len(neighbours))]

    return evenly(steps(), seconds)


def interference(
    random: Random, rate: float, seconds: float, *, clear: float = 1.0, burst: float = 0.1, left: float = 0.1
) -> Iterator[float]:
    """Interference in bursts: two states, and in the bad one most transmissions fail and are repeated by the MAC, so
    that little of the rate is left.

    rate: of the clear link (bit/s). clear, burst: mean time in each state (s; assumed). left: part of the rate in a
    burst (assumed). Sources: Gilbert, "Capacity of a Burst-Noise Channel", Bell Syst. Tech. J. 39, 1960; Elliott,
    "Estimates of Error Rates for Codes on Burst-Noise Channels", Bell Syst. Tech. J. 42, 1963.
    """

    def steps() -> Iterator[tuple[float, float]]:
        while True:
            yield random.expovariate(1 / clear), rate
            yield random.expovariate(1 / burst), rate * left

    return evenly(steps(), seconds)


def handover(
    random: Random, rate: float, seconds: float, *, every: float = 10.0, shortest: float = 0.06, longest: float = 0.4
) -> Iterator[float]:
    """Handover gaps: once in each `every` s, at any place within them, nothing passes for `shortest` to `longest` s.

    rate: outside of the gaps (bit/s). Source of the default lengths: Mishra, Shin, Arbaugh, "An Empirical Analysis of
    the IEEE 802.11 MAC Layer Handoff Process", ACM CCR 33(2), 2003 (60 to 400 ms by the hardware). QoS-TCP on real
    terminals (section IV) has 10 s: every=60, shortest=10, longest=10.
    """
    if not 0 < shortest <= longest < every:
        raise TraceError("a handover needs 0 < shortest <= longest < every: the gap lies within `every` s")

    def steps() -> Iterator[tuple[float, float]]:
        while True:
            gap = random.uniform(shortest, longest)
            before = random.uniform(0, every - gap)
            yield from [(before, rate), (gap, 0.0), (every - gap - before, rate)]

    return evenly(steps(), seconds)


def hspa(
    random: Random, rate: float, seconds: float, *, wander: float = 4.0, outage: float = 0.05,
    again: float = 0.02, hold: float = 0.1
) -> Iterator[float]:  # fmt: skip
    """HSPA+: a rate that wanders and now and then stays away, packets at random times, and holds in which everything
    waits for one block that is sent again, then comes at once.

    rate: mean (bit/s). wander: of the rate, per square root of a second, as part of the mean; outage: mean length (s).
    The model: Winstein et al., "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks",
    NSDI 2013, section 3. The values: fitted to BATCP's Fig. 4, where 25 transfers of 5 MB had 39.0 to 44.4 kB/s
    (Sprout's own, 0.4 and 1, would spread them from 19 to 73). again: part of the packets that are held; hold: for how
    long (s) (both assumed): RLC's acknowledged mode delivers in sequence, 3GPP TS 25.322.
    """
    tick = 0.02  # s
    path, level, out = [], 1.0, False
    for _ in range(math.ceil(seconds / tick)):
        if out and random.random() < tick / outage:
            out, level = False, wander * math.sqrt(tick)
        elif not out:
            level += random.gauss(0, wander * math.sqrt(tick))
            level = 4 - level if level > 2 else level
            out = level <= 0
        path.append(0.0 if out else level)
    # Poisson given their number, so that the mean is `rate`: where equally likely places along the path lie.
    ends = list(accumulate(path))
    if not ends[-1]:
        raise TraceError("nothing ever passes: give another seed or more seconds")
    held_until = 0.0
    for place in sorted(random.random() * ends[-1] for _ in range(round(rate * seconds / FRAME_BITS))):
        index = bisect_left(ends, place)
        now = (index + 1 - (ends[index] - place) / path[index]) * tick
        if random.random() < again:
            held_until = max(held_until, now + hold)
        yield max(now, held_until)


EFFECTS: dict[str, Callable[..., Iterator[float]]] = {
    "aggregation": aggregation,
    "rate-steps": rate_steps,
    "interference": interference,
    "handover": handover,
    "hspa": hspa,
}


def evenly(steps: Steps, seconds: float) -> Iterator[float]:
    """Opportunities (s) at an even pace, where steps of (length in s, rate in bit/s) say which."""
    now, missing = 0.0, 1.0  # parts of an opportunity
    for length, rate in steps:
        end = min(now + length, seconds)
        while rate and now + missing * FRAME_BITS / rate <= end:
            now += missing * FRAME_BITS / rate
            missing = 1.0
            yield now
        missing -= (end - now) * rate / FRAME_BITS
        now = end
        if now >= seconds:
            return


def parameters(name: str) -> dict[str, float]:
    """An effect's own parameters with their defaults."""
    signature = inspect.signature(EFFECTS[name]).parameters.values()
    return {one.name: one.default for one in signature if one.kind is one.KEYWORD_ONLY}


def generate(name: str, rate: float, seconds: float, seed: int, **own: float) -> Trace:
    """The effect's trace: the same for the same arguments. rate: bit/s, what it means the effect says. The trace's last
    opportunity is put to its end. Raises TraceError."""
    if name not in EFFECTS:
        raise TraceError(f"effect '{name}' is unknown: choose one of {', '.join(EFFECTS)}")
    if not 0 < seconds <= MAX_SECONDS:
        raise TraceError(f"{seconds:g} s are not possible: give up to {MAX_SECONDS:g}")
    known = parameters(name)
    for parameter, value in own.items():
        if parameter not in known:
            raise TraceError(f"effect '{name}' has no parameter '{parameter}': choose of {', '.join(known)}")
        if not 0 <= value < math.inf or (value == 0 and parameter not in ("left", "again", "wander")):
            raise TraceError(f"effect '{name}': {parameter}={value:g} is not possible: give a number above 0")
    end = math.ceil(seconds * 1e3)
    found = EFFECTS[name](Random(seed), rate, seconds, **own)
    # Not before its time: an opportunity within a millisecond comes at its end.
    times = [time for time in (math.ceil(at * 1e3 - 1e-6) for at in found) if time <= end]
    if not times:
        raise TraceError(f"{seconds:g} s at {rate:g} bit/s are too short for one packet: give more")
    return Trace((*times[:-1], end))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.topologies.links.effects", description="Writes a link's trace."
    )
    parser.add_argument("effect", help=f"one of {', '.join(EFFECTS)}")
    parser.add_argument("--rate", required=True, help="e.g. 14mbit or 355kbit; see docs/effects.md")
    parser.add_argument("--seconds", type=float, default=60.0, help="length (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="another one gives another trace (default: 1)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the effect")
    parser.add_argument("--out", type=Path, required=True, help="where the trace goes")
    options = parser.parse_args(argv)
    try:
        own = dict(_setting(text) for text in options.set)
        trace = generate(options.effect, parse_rate(options.rate), options.seconds, options.seed, **own)
        trace.write(options.out)
    except (TraceError, ProfileError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    longest = f"longest gap {trace.longest_gap} ms"
    print(f"{options.out}: {len(trace.times)} packets in {trace.seconds:g} s, {trace.rate / 1e3:.0f} kbit/s, {longest}")
    return 0


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise TraceError(f"'{text}' is not NAME=NUMBER") from None


if __name__ == "__main__":
    sys.exit(main())
