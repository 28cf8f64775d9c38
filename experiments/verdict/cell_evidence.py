# SPDX-License-Identifier: Apache-2.0
"""Figures of simulated cells of 802.11 that answer the claims of papers 001, 002 and 004
(accesspoint.experiments.verdict.claim_evidence)."""

import functools
import operator
from collections.abc import Mapping
from typing import Literal

from accesspoint.experiments.catalogue.cwnd.radio import DELAYS, TERMINALS
from accesspoint.experiments.catalogue.qos.radio import MAX_THROUGHPUT, OTHERS
from accesspoint.experiments.verdict.claims import Point, Repeats
from accesspoint.experiments.verdict.evidence import Answers, Measured, both, times

CELL, PLAIN, MIDDLEWARE = "cell-terminals", "plain", "middleware"
DEFAULT, ADJUSTED = "default condition without the middleware", "adjusted condition with our middleware"
LONG = 256
"""ms: Figs. 11 to 14 have it, as the section after them says of "the previous experiment"."""
CROWD = 10


def over_delays(measure: str, arm: str, terminals: int, m: Measured) -> Repeats | None:
    """The mean of both artificial delays, for claims of both, or of one that is not stated."""
    short, long = (m(CELL, measure, arm, terminals=terminals, delay=delay) for delay in DELAYS)
    return times(both(short, long, operator.add), 1 / 2)


def crowded(measure: str, counts: Mapping[str, int]) -> Answers:
    """Figures by a number of plain terminals. counts: arm of the claim -> terminals, all of them plain."""
    return lambda m, name, point: over_delays(measure, PLAIN, counts[name], m)


def by_terminals(measure: str, arm: str) -> Answers:
    """The claim's points are numbers of terminals."""
    return lambda m, name, point: m(CELL, measure, arm, terminals=int(point or CROWD), delay=LONG)


def with_and_without(measure: str) -> Answers:
    """Both arms; the claim's points are numbers of terminals, and 10 where it has none."""
    arms = {DEFAULT: PLAIN, ADJUSTED: MIDDLEWARE}
    return lambda m, name, point: m(CELL, measure, arms[name], terminals=int(point or CROWD), delay=LONG)


def with_it_by_delay(m: Measured, name: str, point: Point | None) -> Repeats | None:
    arm = {DEFAULT: PLAIN, ADJUSTED: MIDDLEWARE}[name]
    return m(CELL, "total", arm, terminals=CROWD, delay=int(point or LONG))


def gain(m: Measured, name: str, point: Point | None) -> Repeats | None:
    with_it, without = (m(CELL, "total", arm, terminals=CROWD, delay=LONG) for arm in (MIDDLEWARE, PLAIN))
    return both(with_it, without, lambda one, other: one / other)


def most_of_all(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The largest total over the numbers of terminals that were run, at the shorter delay."""
    found = [m(CELL, "total", PLAIN, terminals=terminals, delay=DELAYS[0]) for terminals in TERMINALS]
    run = [one for one in found if one is not None]
    return functools.reduce(lambda one, other: one.together(other, max), run) if run else None


def smallest_round_trip(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The smallest round trip over the artificial delay: `min_rtt` over itself is 1."""
    found = m(CELL, "smallest", PLAIN, terminals=1, delay=int(point or LONG))
    return found if name == "min_rtt" else both(found, found, lambda one, other: one / other)


def some_with_it(terminals: int) -> Answers:
    """The claim's points are numbers of terminals with the middleware."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        bounding = 0 if name == "no terminal with the middleware" else int(point or 0)
        return m(f"cell-mixed-{terminals}", "total", "mixed", terminals=terminals, delay=LONG, **{"with": bounding})

    return answer


def of_a_mixed_terminal(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The mean over the mixes that were run, with one terminal of each kind at least."""
    terminals = int(point or CROWD)
    measure = "with" if name == "terminals with middleware" else "without"
    found = [
        m(f"cell-mixed-{terminals}", measure, "mixed", terminals=terminals, delay=LONG, **{"with": bounding})
        for bounding in range(1, terminals)
    ]
    run = [one for one in found if one is not None]
    return times(functools.reduce(operator.add, run), 1 / len(run)) if run else None


def effective(protocol: str, direction: str) -> Answers:
    """Table 1; the claim's points are numbers of nodes."""
    return lambda m, name, point: m(
        "cell-effective", "total", PLAIN, protocol=protocol, direction=direction, nodes=int(point or 0)
    )


def best_at(protocol: str, direction: str) -> Answers:
    """The claim's arms are numbers of nodes, as "4 nodes"."""
    return lambda m, name, point: effective(protocol, direction)(m, name, int(name.split()[0]))


def effective_by(named: Literal["protocol", "direction"]) -> Answers:
    """The claim's arms are of this, and its points name the other and the nodes: "UDP 1", "upload 1"."""
    ways = {"upload": "up", "download": "down"}

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        other, nodes = str(point).split()
        protocol, direction = (name, ways[other]) if named == "protocol" else (other, ways[name])
        return effective(protocol, direction)(m, name, int(nodes))

    return answer


SESSIONS = {"TCP Reno": "reno", "TCP Westwood": "westwood", "TCP Vegas": "vegas"} | {
    "TCP Reno-MaxWin10": "reno-maxwin", "TCP Vegas-Fair": "vegas-fair",
}  # fmt: skip
SHORT, FEW = 10_000, 4
"""Octets of a session and nodes, where the claim has no other."""


def of_nodes(measure: str, direction: str, nodes: int | None = None) -> Answers:
    """The claim's points are numbers of nodes, or `nodes` for all of them."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        count = nodes or int(point or FEW)
        return m("cell-fairness", measure, SESSIONS[name], direction=direction, nodes=count, bytes=SHORT)

    return answer


def of_lengths(direction: str) -> Answers:
    """The claim's points are lengths of sessions in KB, 500 where it has none."""
    return lambda m, name, point: m(
        "cell-lengths", "if", SESSIONS[name], direction=direction, nodes=FEW, bytes=int(point or 500) * 1000
    )


def below_vegas(m: Measured, name: str, point: Point | None) -> Repeats | None:
    vegas, other = (of_nodes("if", "down")(m, which, point) for which in ("TCP Vegas", name))
    return both(vegas, other, operator.sub)


def of_vegas_over(m: Measured, name: str, point: Point | None) -> Repeats | None:
    vegas, other = (of_nodes("throughput", "down")(m, which, point) for which in ("TCP Vegas", name))
    return both(vegas, other, operator.truediv)


def finish_or_response(m: Measured, name: str, point: Point | None) -> Repeats | None:
    measure = "response" if point == "response time" else "if"
    return m("cell-fairness", measure, SESSIONS[name], direction="down", nodes=FEW, bytes=SHORT)


def over_versions(measure: str, direction: str) -> Answers:
    """The claim's points are its arms: the mean over the numbers of nodes that were run."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        return over_nodes(m, measure, SESSIONS[name], direction)

    return answer


def over_nodes(m: Measured, measure: str, arm: str, direction: str) -> Repeats | None:
    found = [m("cell-fairness", measure, arm, direction=direction, nodes=n, bytes=SHORT) for n in (2, 4, 6, 8, 10)]
    run = [one for one in found if one is not None]
    return times(functools.reduce(operator.add, run), 1 / len(run)) if run else None


def of_all_versions(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The claim's arms are directions: the mean over Reno, Vegas and Westwood, and over the nodes."""
    found = [over_nodes(m, "if", arm, name.removesuffix("load")) for arm in ("reno", "vegas", "westwood")]
    run = [one for one in found if one is not None]
    return times(functools.reduce(operator.add, run), 1 / len(run)) if len(run) == len(found) else None


def lowest_of(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The claim's points are numbers of terminals."""
    return m("cell-unlucky", "lowest", PLAIN, terminals=int(point or CROWD))


def most_tcp(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The largest total over the numbers of terminals that were run."""
    found = [m("cell-unlucky", "total", PLAIN, terminals=terminals) for terminals in range(2, 11)]
    run = [one for one in found if one is not None]
    return functools.reduce(lambda one, other: one.together(other, max), run) if run else None


def over_buffers(measure: str, arm: str) -> Answers:
    """The claim's points are buffers of Table I; the cell's hold whole packets."""
    return lambda m, name, point: m("cell-buffers", measure, arm, buffer=int(float(point or 0)))


def qos_and_fair(m: Measured, name: str, point: Point | None) -> Repeats | None:
    total = over_buffers("total", "qos")(m, name, point)
    return over_buffers("first", "qos")(m, name, point) if name == "QoS-TCP" else times(total, 1 / (1 + OTHERS))


def along_path(indoor: str, outdoor: str) -> Answers:
    """The claim's arms begin with the place; TCP, as every claim has it."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        place, measure = ("indoor", indoor) if name.startswith("indoor") else ("outdoor", outdoor)
        return m("cell-path", measure, "alone", place=place, protocol="TCP")

    return answer


def attenuated(m: Measured, name: str, point: Point | None) -> Repeats | None:
    return m("cell-path", "near" if name.startswith("close") else "edge", "alone", place="indoor", protocol="TCP")


WALKERS = {"TCP": "tcp", "QoS-TCP": "qos"}
SPOTS = {"near AP-1": "near_first", "between the APs": "between", "near AP-2": "near_second"}


def walking(place: str, measure: str) -> Answers:
    """The mobile terminal's figure, in fair shares; the claim's points, if any, are places along the path."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        return m("cell-handover", SPOTS[str(point)] if point else measure, WALKERS[name], place=place)

    return answer


def above_fair(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """Figures are in fair shares: that of another terminal is 1."""
    found = m("cell-handover", "after", "qos", place="indoor")
    return found if name == "QoS-TCP" else both(found, found, operator.truediv)


def by_channel(m: Measured, name: str, point: Point | None) -> Repeats | None:
    place = {"good": "indoor", "with": "indoor", "bad ": "outdoor"}.get(name[:4], "simulation")
    return m("cell-handover", "after", "qos", place="simulation" if name.startswith("without") else place)


def gain_by_bursts(m: Measured, name: str, point: Point | None) -> Repeats | None:
    lossy, clean = (m("cell-handover", "after", WALKERS[name], place=place) for place in ("indoor", "simulation"))
    return both(lossy, clean, operator.sub)


def repaired(m: Measured, name: str, point: Point | None) -> Repeats | None:
    return m("cell-handover", "timeouts" if name == "by timeout" else "recoveries", "tcp", place="indoor")


ANSWERS: Mapping[str, Answers] = {
    "001-table1-udp-download": effective("UDP", "down"),
    "001-table1-udp-upload": effective("UDP", "up"),
    "001-table1-tcp-download": effective("TCP", "down"),
    "001-table1-tcp-upload": effective("TCP", "up"),
    "001-table1-upload-above-download": effective_by("direction"),
    "001-table1-udp-above-tcp": effective_by("protocol"),
    "001-table1-tcp-upload-best-at-8": best_at("TCP", "up"),
    "001-table1-tcp-download-best-at-4": best_at("TCP", "down"),
    "001-table1-udp-upload-best-at-4": best_at("UDP", "up"),
    "001-sec33-finish-or-response": finish_or_response,
    "001-fig2a-vegas-above": of_nodes("if", "down"),
    "001-fig2a-vegas-twice-at-4": of_nodes("if", "down", FEW),
    "001-fig2a-reno-westwood-flat": of_nodes("if", "down"),
    "001-fig2a-vegas-rises": of_nodes("if", "down"),
    "001-fig2a-difference-rises": below_vegas,
    "001-fig2b-vegas-flat": of_lengths("down"),
    "001-fig2b-vegas-60-percent": of_lengths("down"),
    "001-fig2b-reno-westwood-rise": of_lengths("down"),
    "001-fig2b-reno-westwood-above-at-500": of_lengths("down"),
    "001-fig3a-same-pattern": of_nodes("if", "up"),
    "001-fig3a-below-download": of_all_versions,
    "001-fig3a-reno-westwood-fall": of_nodes("if", "up"),
    "001-fig3b-reno-westwood-above-from-50": of_lengths("up"),
    "001-fig3b-vegas-below-half": of_lengths("up"),
    "001-fig4a-vegas-comparable": of_vegas_over,
    "001-fig4a-vegas-below-at-2": of_nodes("throughput", "down", 2),
    "001-fig4b-reno-westwood-above": of_nodes("throughput", "up"),
    "001-sec51-vegas-window": of_nodes("window", "down", FEW),
    "001-fig6a-maxwin10-above-reno": of_nodes("if", "down"),
    "001-fig6a-vegasfair-above-vegas": of_nodes("if", "down"),
    "001-fig6a-maxwin10-like-vegasfair": over_versions("if", "down"),
    "001-fig6b-maxwin10-below-reno-crowded": of_nodes("throughput", "up", 10),
    "001-fig6b-maxwin10-below-reno-alone": of_nodes("throughput", "up", 2),
    "001-fig6b-vegasfair-like-vegas": over_versions("throughput", "up"),
    "002-sec-basic-bwmax": most_of_all,
    "002-fig6-total-falls": lambda m, name, point: over_delays("total", PLAIN, int(point or CROWD), m),
    "002-fig7-control-disturbed": crowded("interruptions", {"10 terminals": 10, "1 terminal": 1}),
    "002-fig8-rtt-higher-with-10": crowded("rtt", {"10 terminals": 10, "1 terminal": 1, "5 terminals": 5}),
    "002-fig8-rtt-above-12s": lambda m, name, point: m(
        CELL, "most_rtt", PLAIN, terminals=CROWD, delay=int(point or LONG)
    ),
    "002-fig8-bursts-of-delay": crowded("bursts", {DEFAULT: CROWD}),
    "002-fig9-fast-retransmit-states": crowded("recovering", {"10 terminals": 10, "1 terminal": 1}),
    "002-sec-basic-min-rtt": smallest_round_trip,
    "002-fig11-adjusted-above-default": with_it_by_delay,
    "002-fig11-factor-with-10": with_and_without("total"),
    "002-fig11-more-than-3-times": gain,
    "002-fig12-not-enabled-below-4": by_terminals("largest_ratio", MIDDLEWARE),
    "002-fig12-enabled-at-4": by_terminals("largest_ratio", MIDDLEWARE),
    "002-fig13-ratio-not-kept-above-6": by_terminals("kept_ratio", MIDDLEWARE),
    "002-fig13-small-from-5": with_and_without("ratio"),
    "002-fig14-fairness-near-1": by_terminals("jain", MIDDLEWARE),
    "002-fig14-default-falls": by_terminals("jain", PLAIN),
    "002-fig14-fairness-order": with_and_without("jain"),
    "002-fig15-total-with-some-middleware": some_with_it(4),
    "002-fig16-total-with-some-middleware": some_with_it(7),
    "002-fig17-total-with-some-middleware": some_with_it(10),
    "002-fig15to17-without-a-little-higher": of_a_mixed_terminal,
    "004-fig2-depends-on-buffer": over_buffers("first", "two"),
    "004-sec4a-max-tcp": most_tcp,
    "004-fig3-qos-regardless-of-buffer": over_buffers("first", "qos"),
    "004-fig3-tcp-rises-with-buffer": over_buffers("others", "qos"),
    "004-fig3-qos-above-fair-share": qos_and_fair,
    "004-fig6-fair-up-to-4": lowest_of,
    "004-fig6-unfair-from-5": lowest_of,
    "004-sec4b-fair-up-to-6": lowest_of,
    "004-sec4b-unfair-from-7": lowest_of,
    "004-fig6-simulation-recovers": lambda m, name, point: m("cell-joining", "without", PLAIN),
    "004-fig7-fig8-indoor-above-outdoor": along_path("mean", "mean"),
    "004-fig7-outdoor-reduced-near-ap": along_path("near", "near"),
    "004-fig8-indoor-attenuated-at-handover": attenuated,
    "004-fig9-tcp-at-most-fair": walking("outdoor", "after"),
    "004-fig9-qos-above-fair-near-ap1": walking("outdoor", "near_first"),
    "004-fig9-qos-fails-elsewhere": walking("outdoor", "after"),
    "004-fig10-qos-above-tcp-after-handover": lambda m, name, point: m(
        "cell-handover", "after_mbps", WALKERS[name], place="indoor"
    ),
    "004-fig10-tcp-gets-nothing": walking("indoor", "after"),
    "004-fig10-qos-twice-fair": above_fair,
    "004-fig9-fig10-good-and-bad-channel": by_channel,
    "004-fig11-qos-near-zero-in-simulation": walking("simulation", "after"),
    "004-fig10-fig11-experiment-above-simulation": by_channel,
    "004-sec5-bursts-help-qos-not-tcp": gain_by_bursts,
    "004-sec4c-timeouts": repaired,
}  # fmt: skip


def none_unlucky(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The lowest of five behind this access point, of the fair share; a repeat without 95 % of 23 Mb/s in total counts
    as 0."""
    lowest, total = (m("cell-unlucky", measure, "ours", terminals=5) for measure in ("lowest", "total"))
    if lowest is None or total is None:
        return None
    return lowest.together(total, lambda own, all_of_them: own if all_of_them >= 0.95 * MAX_THROUGHPUT else 0.0)


def fair_behind_ours(m: Measured, name: str, point: Point | None) -> Repeats | None:
    return m("cell-fairness", "if", "ours-cubic", direction="down", nodes=FEW, bytes=SHORT)


BEATEN: Mapping[str, Answers] = {
    "001-fig2b-vegas-60-percent": fair_behind_ours,
    "004-fig6-unfair-from-5": none_unlucky,
}
"""This access point's figure for a claim's `beat`."""
