# SPDX-License-Identifier: Apache-2.0
"""Which figures of which experiments answer a claim, and what is missing for the others. Limits are the claims' alone.

How the arms were chosen, before any result was judged: where the paper compares with its own proposal, both sides have
the same hosts (CUBIC with ECN: the paper names no TCP), so what it calls normal is the arm `fifo`, and its proposal the
arm `ncr-paper`, with its law and its parameters (R7).
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from experiments.claims import Answer, Claim, Point, Repeats
from experiments.cwnd.radio import DELAYS, TERMINALS
from experiments.experiment import Value
from experiments.ncr.grid import ALONE, DOWNLOADS, THIRDS, UPLOADS
from experiments.ncr.settings import DEFAULT as AS_IT_IS
from experiments.ncr.settings import SETTINGS
from experiments.qos.radio import MOST, OTHERS


class Measured(Protocol):
    """A figure of an experiment's arm at a point of the experiment; None: it was not run."""

    def __call__(self, experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None: ...


Answers = Callable[[Measured, str, Point | None], Repeats | None]
"""Of an arm at a point, both as the claim calls them."""

LACKS: Mapping[str, tuple[str, ...]] = {
    "the access points themselves, or somebody else's model of them": (
        "these five access points as devices",
        "an access point as a device, or a model of its batched admission taken from elsewhere",
    ),
    "terminals that differ in hardware": (
        "terminals that differ in hardware",
        "terminals that differ in hardware (the paper says that an equivalent simulation would not show it)",
    ),
    "other operating systems": ("the TCP of Windows and of Mac OS",),
    "TCP as ns-2 has it": ("ns-2-like TCP and drop-tail queue", "TCP Reno, Westwood, Westwood-NR and Linux's"),
    "an application that reads slowly": (
        "two traffic sources",
        "two traffic sources: a bulk sender and an application that reads in user mode and is slowed by it",
    ),
    "another paper's protocol or network, which is not in the text": (
        "BA with SCTP and LS-SCTP, on the links of their own papers, which are not in the text",
        "BA with SCTP, on the links of its own paper, which are not in the text",
        "MPTCP with discontinuous traffic on a jellyfish topology",
        "MPTCP with six flows on a jellyfish topology with permutation and discontinuous traffic",
        "PRISM with its proxy", "PRISM, BA with SCTP, LS-SCTP, pTCP and SBAM", "SBAM", "pTCP",
        "pTCP and SBAM, on the links of their own papers, which are not in the text",
        "the law and the tuned window table of Ai et al., which are not in the text",
    ),
}  # fmt: skip
"""What the lab has not -> the parts of `needs` that ask for it."""

HAS = frozenset({
    # Cells of ns-3.
    "802.11 contention", "802.11 contention between stations", "802.11g contention between stations",
    "802.11b contention between AP and stations with its overheads", "802.11b contention with its overheads",
    "802.11b contention between stations with its overheads", "802.11g link",
    "802.11g contention between stations with its overheads", "802.11g contention with its overheads",
    "TCP ACKs that contend for the channel",
    "one link per direction without contention between them",
    "ACKs of the download share the uplink queue with the upload's data",
    "NCR's law", "ECN-capable TCP", "several flows per direction",
    # Links set to the stated rates: the pages of the experiments say so.
    "802.11 overhead (11 Mb/s gives about 3.5 Mb/s of TCP) or a link set to the stated data rate, then said so",
    "802.11 overhead on a 54 Mb/s link (or a link set to the stated 14 Mb/s, then said so)",
    "WiMAX links (or links set to 4.5 and 1.5 Mb/s, then said so)",
    "LTE links (or links set to 30 and 15 Mb/s, then said so)",
    "TCP settings for window, delayed ACK, SACK and buffer",
    "a TCP sender whose window has to regrow after the upload ends",
    "TCP Reno and Vegas", "TCP Reno and Westwood", "TCP Reno with an upper bound on the window",
    "TCP Reno, Vegas and Westwood", "TCP Vegas", "TCP Vegas and Vegas-Fair", "TCP Vegas-Fair",
    "UDP sources above the link's capacity", "persistent and intermittent flows",
    "a queue at the access point filled by persistent downloads", "session lengths close enough to see the crossing",
    "up and down traffic through one access point",
    "CUBIC", "CUBIC uploads", "CUBIC with the Linux states Open, Disorder, CWR, Recovery, Loss",
    "RTT and throughput over time", "RTT samples over time", "a trace of the congestion window",
    "a queue at the access point", "a queue at the access point and at the terminals",
    "an artificial delay in the wired part", "an own delay per terminal that changes over time",
    "buffer overflow at the access point", "loss of ACKs at the access point",
    "loss of ACKs at the access point's queue", "the middleware's law",
    "the middleware's law (window limits from RTT ratio and number of terminals)",
    "the middleware's law on some terminals only", "receive and send windows large enough to fill that queue",
    "queues in terminal and AP deep enough (or MAC retries and power saving slow enough) to hold a packet for 12 s",
    "BATCP's scheduling law", "BATCP's scheduling law as printed (equations 1 to 4)",
    "MPTCP (coupled windows, its scheduler)", "a link of 355 kb/s with bursts and varying delay",
    "a link of 633 kb/s with small jitter", "in-order reassembly at the receiver",
    "one TCP connection per interface under one stream", "two interfaces",
    "two interfaces with different rate and RTT",
    "two interfaces with different rate and RTT, one with bursts and varying delay",
    "two interfaces, one with bursts and varying delay",
    "two stable links and one with bursts and varying delay",
    "two stable links and one with bursts and varying delay (whoever sets that delay puts the answer in: say so)",
    "QoS-TCP's law (TCP-AV, not in the text)", "access point buffers of these sizes",
    "an access point buffer of 256 packets", "an access point buffer of 265 packets", "equal terminals",
    # Models in ns-3, whose amount the paper does not state.
    "a radio channel with path loss", "a radio channel with path loss and interference", "a moving terminal",
    "interference from other networks", "burst bit errors", "burst bit errors that exceed the MAC retries",
    "handover between two access points",
})  # fmt: skip

MISSING: Mapping[str, str] = {
    "001-fig2a-ap-queue": "how long single packets wait at the access point of the simulated cell",
    "001-sec42-bidirectional": "sessions in both directions at once in the simulated cell",
    "001-fig3b-reversal-earlier": "lengths of sessions close enough to see the crossing",
    "004-sec4a-advantage-grows-with-congestion": "TCP-AV among more and more terminals (arm qos of cell-unlucky)",
    "004-sec4b-late-qos-above-fair": "a late joiner among fixed terminals that lose bursts",
    "004-sec4b-late-tcp-not-above-fair": "a late joiner among fixed terminals that lose bursts",
    "002-fig10-rtt-and-throughput": "rates of single intervals by their round trips",
    "002-sec-discussion-own-delays": "delays of the wire that differ and change",
    "000-fig7b-delay": "the delay of data packets: the grid has a probe's",
    "003-fig4-adsl-steadier": "batches of uploads: a repeat is one upload, and the claim is of how several differ",
    "003-fig4-hspa-rtt-and-jitter": "round trips of single interfaces",
    "003-sec4-repeats-settle": "three batches of 25 uploads",
}
"""Claims whose needs the lab has, and that no experiment measures."""

NORMAL, NCR = "fifo", "ncr-paper"
KILO = 1000.0


def _both(one: Repeats | None, other: Repeats | None, how: Callable[[Repeats, Repeats], Repeats]) -> Repeats | None:
    return how(one, other) if one is not None and other is not None else None


def _times(one: Repeats | None, factor: float) -> Repeats | None:
    return one * factor if one is not None else None


def figure(experiment: str, measure: str, arm: str, factor: float = 1.0) -> Answers:
    """One figure for whatever arm and point the claim has."""
    return lambda m, name, point: _times(m(experiment, measure, arm), factor)


def by_arm(experiment: str, of: Mapping[str, tuple[str, str]]) -> Answers:
    """of: arm of the claim -> measure, arm."""
    return lambda m, name, point: m(experiment, *of[name]) if name in of else None


def by_point(experiment: str, arm: str, of: Mapping[Point, str]) -> Answers:
    """of: point of the claim -> measure."""
    return lambda m, name, point: m(experiment, of[point], arm) if point is not None and point in of else None


def during(experiment: str, measure: str, normal: str, ncr: str) -> Answers:
    """A measure of both arms, by the names that the claim has for them."""
    return by_arm(experiment, {normal: (measure, NORMAL), ncr: (measure, NCR)})


def grid_point(m: Measured, name: str, point: Point | None) -> Repeats | None:
    downloads, uploads = map(int, str(point).split("x"))
    if name == "the same downloads without any upload":
        uploads = ALONE
    return m("ncr-grid", "download", NCR if name == "NCR" else NORMAL, downloads=downloads, uploads=uploads)


def over_the_grid(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The sum over all points of the grid, or over those of the quick form: a ratio of sums is one of means. The text
    does not say which is meant."""
    arm = {"NCR": NCR, "normal WLAN": NORMAL}[name]

    def over(downloads: Sequence[int], uploads: Sequence[int]) -> Repeats | None:
        found = [m("ncr-grid", "total", arm, downloads=down, uploads=up) for down in downloads for up in uploads]
        return functools.reduce(lambda one, other: _both(one, other, operator.add), found)

    quick = over(THIRDS["downloads"], [up for up in THIRDS["uploads"] if up != ALONE])
    return over(DOWNLOADS, UPLOADS) or (quick if quick and quick.form == "quick" else None)


def gain_and_loss(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """In the setting of Fig. 6, the only one of which the text prints all four values."""
    if name == "what the download gains":
        kept, before = (m("ncr-wlan", "download_during", arm) for arm in (NCR, NORMAL))
    else:
        kept, before = (m("ncr-wlan", "upload_during", arm) for arm in (NORMAL, NCR))
    return _both(kept, before, lambda one, other: one - other)


def best_setting(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """Of the settings that hosts can make, the one with the highest mean; all of them, or none, were measured."""
    if name == "download alone":
        return m("ncr-settings", "download_alone", AS_IT_IS)
    found = [m("ncr-settings", "download_during", setting) for setting in SETTINGS]
    measured = [one for one in found if one is not None]
    if len(measured) < len(found):
        return None
    return max(measured, key=lambda one: sum(one.values.values()) / max(1, len(one.values)))


UNSTEADY = "adsl-hspa-bursts"
"""The HSPA link as Fig. 4 has it."""
SIZES = (5_000_000, 10_000_000)
BY_ITSELF = {"ADSL1": ("tcp", "adsl-adsl"), "ADSL2": ("second", "adsl-adsl"), "HSPA": ("second", UNSTEADY)}
"""One link -> arm, links."""


def one_link(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """kB/s, both file sizes."""
    arm, links = BY_ITSELF[name]
    sizes = [m("batcp", "throughput", arm, links=links, bytes=size) for size in SIZES]
    return _times(_both(sizes[0], sizes[1], lambda one, other: one + other), 1 / 2 / 8)


def of_both_alone(pairs: Mapping[str, tuple[str, str]], size: int | None = None) -> Answers:
    """Per cent of what the two links carry, each by itself. pairs: arm of the claim -> arm, links. size: MB, where the
    claim has no point for it."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        arm, links = pairs[name]
        octets = int(size or point or 0) * 1_000_000
        found = [m("batcp", "throughput", each, links=links, bytes=octets) for each in (arm, "tcp", "second")]
        alone = _both(found[1], found[2], lambda one, other: one + other)
        return _times(_both(found[0], alone, lambda one, other: one / other), 100)

    return answer


def share_of_link(m: Measured, name: str, point: Point | None) -> Repeats | None:
    better = name == "the interface that performs better"
    return m("batcp", "first" if better else "second", "paper", links=UNSTEADY, bytes=SIZES[0])


def iperf(measure: str, arm: str) -> Answers:
    """The lab's bulk sender is iperf3; FileZilla it has not."""
    return lambda m, name, point: m("ncr-testbed", measure, arm) if "Iperf" in (name, point) else None


CELL, PLAIN, MIDDLEWARE = "cell-terminals", "plain", "middleware"
DEFAULT, ADJUSTED = "default condition without the middleware", "adjusted condition with our middleware"
LONG = 256
"""ms: Figs. 11 to 14 have it, as the section after them says of "the previous experiment"."""
CROWD = 10


def over_delays(measure: str, arm: str, terminals: int, m: Measured) -> Repeats | None:
    """The mean of both artificial delays, for claims of both, or of one that is not stated."""
    short, long = (m(CELL, measure, arm, terminals=terminals, delay=delay) for delay in DELAYS)
    return _times(_both(short, long, operator.add), 1 / 2)


def crowded(measure: str, counts: Mapping[str, int]) -> Answers:
    """counts: arm of the claim -> terminals, all of them plain."""
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
    return _both(with_it, without, lambda one, other: one / other)


def most_of_all(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The largest total over the numbers of terminals that were run, at the shorter delay."""
    found = [m(CELL, "total", PLAIN, terminals=terminals, delay=DELAYS[0]) for terminals in TERMINALS]
    run = [one for one in found if one is not None]
    return functools.reduce(lambda one, other: one.together(other, max), run) if run else None


def smallest_round_trip(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """Over the artificial delay: that over itself is 1."""
    found = m(CELL, "smallest", PLAIN, terminals=1, delay=int(point or LONG))
    return found if name == "min_rtt" else _both(found, found, lambda one, other: one / other)


def some_with_it(terminals: int) -> Answers:
    """The claim's points are how many have the middleware."""

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
    return _times(functools.reduce(operator.add, run), 1 / len(run)) if run else None


def effective(protocol: str, direction: str) -> Answers:
    """Table 1; the claim's points are numbers of nodes."""
    return lambda m, name, point: m(
        "cell-effective", "total", PLAIN, protocol=protocol, direction=direction, nodes=int(point or 0)
    )


def best_at(protocol: str, direction: str) -> Answers:
    """The claim's arms are numbers of nodes: "4 nodes"."""
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
    return _both(vegas, other, operator.sub)


def of_vegas_over(m: Measured, name: str, point: Point | None) -> Repeats | None:
    vegas, other = (of_nodes("throughput", "down")(m, which, point) for which in ("TCP Vegas", name))
    return _both(vegas, other, operator.truediv)


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
    return _times(functools.reduce(operator.add, run), 1 / len(run)) if run else None


def of_all_versions(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The claim's arms are directions: the mean over Reno, Vegas and Westwood, and over the nodes."""
    found = [over_nodes(m, "if", arm, name.removesuffix("load")) for arm in ("reno", "vegas", "westwood")]
    run = [one for one in found if one is not None]
    return _times(functools.reduce(operator.add, run), 1 / len(run)) if len(run) == len(found) else None


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
    return over_buffers("first", "qos")(m, name, point) if name == "QoS-TCP" else _times(total, 1 / (1 + OTHERS))


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
    """Of the mobile terminal, in fair shares; the claim's points, if any, are places along the path."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        return m("cell-handover", SPOTS[str(point)] if point else measure, WALKERS[name], place=place)

    return answer


def above_fair(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """What is measured is in fair shares: theirs is 1."""
    found = m("cell-handover", "after", "qos", place="indoor")
    return found if name == "QoS-TCP" else _both(found, found, operator.truediv)


def by_channel(m: Measured, name: str, point: Point | None) -> Repeats | None:
    place = {"good": "indoor", "with": "indoor", "bad ": "outdoor"}.get(name[:4], "simulation")
    return m("cell-handover", "after", "qos", place="simulation" if name.startswith("without") else place)


def gain_by_bursts(m: Measured, name: str, point: Point | None) -> Repeats | None:
    lossy, clean = (m("cell-handover", "after", WALKERS[name], place=place) for place in ("indoor", "simulation"))
    return _both(lossy, clean, operator.sub)


def repaired(m: Measured, name: str, point: Point | None) -> Repeats | None:
    return m("cell-handover", "timeouts" if name == "by timeout" else "recoveries", "tcp", place="indoor")


WLAN = ("normal WLAN", "NCR")
WIMAX = ("normal WiMAX", "NCR enabled WiMAX")
LTE = ("normal LTE", "NCR enabled LTE")
ANSWERS: Mapping[str, Answers] = {
    "000-fig1-download-alone": iperf("download_alone", NORMAL),
    "000-fig2-download-mixed": figure("ncr-testbed", "download_during", NORMAL, KILO),
    "000-fig2-upload-mixed": figure("ncr-testbed", "upload_during", NORMAL),
    "000-fig2-download-collapses": by_arm("ncr-testbed", {
        "download before the upload starts": ("download_alone", NORMAL),
        "download while the upload runs": ("download_during", NORMAL),
    }),
    "000-fig2-after-upload-fluctuates": by_arm("ncr-testbed", {
        "after the upload ended": ("variation_after", NORMAL),
        "before the upload started": ("variation_alone", NORMAL),
    }),
    "000-sec1-tcp-settings-do-not-help": best_setting,
    "000-fig6-normal-without-upload": by_point(
        "ncr-wlan", NORMAL, {"[0,20] s": "download_alone", "[40,60] s": "download_after"}
    ),
    "000-fig6-ncr-without-upload": by_point(
        "ncr-wlan", NCR, {"[0,20] s": "download_alone", "[40,60] s": "download_after"}
    ),
    "000-fig6-ncr-download-mixed": figure("ncr-wlan", "download_during", NCR),
    "000-fig6-ncr-upload-mixed": figure("ncr-wlan", "upload_during", NCR, KILO),
    "000-sec6-gain-above-loss": gain_and_loss,
    "000-table1-normal-degraded": grid_point,
    "000-table1-ncr-protects": grid_point,
    "000-fig7a-aggregate": over_the_grid,
    "000-fig8-without-upload": during("ncr-wimax", "download_alone", *WIMAX),
    "000-fig8-normal-mixed": during("ncr-wimax", "download_during", *WIMAX),
    "000-fig8-ncr-mixed": during("ncr-wimax", "download_during", *WIMAX),
    "000-fig9-rtt-download": during("ncr-wimax", "download_rtt", *WIMAX),
    "000-fig9-rtt-upload": during("ncr-wimax", "upload_rtt", *WIMAX),
    "000-fig9-rtt-upload-order": during("ncr-wimax", "upload_rtt", *WIMAX),
    "000-fig9-uplink-queue": during("ncr-wimax", "queue", *WIMAX),
    "000-fig10-aggregate": during("ncr-wimax", "total_during", *WIMAX),
    "000-fig10-aggregate-order": during("ncr-wimax", "total_during", *WIMAX),
    "000-fig11-normal-mixed": during("ncr-lte", "download_during", *LTE),
    "000-fig11-ncr-mixed": during("ncr-lte", "download_during", *LTE),
    "000-fig12-aggregate": during("ncr-lte", "total_during", *LTE),
    "000-fig12-aggregate-order": during("ncr-lte", "total_during", *LTE),
    "000-fig12-lte-no-sink": by_point("ncr-lte", NORMAL, {"[1,13] s": "download_alone", "[13,39] s": "total_during"}),
    "000-fig12-sink-wlan": by_arm("ncr-wlan", {
        "normal WLAN before the upload": ("download_alone", NORMAL),
        "normal WLAN while the upload runs": ("total_during", NORMAL),
    }),
    "000-fig12-sink-wimax": by_arm("ncr-wimax", {
        "normal WiMAX before the upload": ("download_alone", NORMAL),
        "normal WiMAX while the upload runs": ("total_during", NORMAL),
    }),
    "000-fig14-normal-aggregate": iperf("total_during", NORMAL),
    "000-fig14-ncr-download": iperf("download_during", NCR),
    "000-fig14-ncr-aggregate": iperf("total_during", NCR),
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
    "003-fig4-adsl-alone": one_link,
    "003-fig4-hspa-alone": one_link,
    "003-fig5-adsl-adsl-sum": of_both_alone({"BATCP over ADSL1 and ADSL2": ("paper", "adsl-adsl")}),
    "003-fig5-hspa-poor": of_both_alone({
        "BATCP over ADSL1 and ADSL2": ("paper", "adsl-adsl"), "BATCP over ADSL1 and HSPA": ("paper", UNSTEADY),
    }),
    "003-sec4-fewer-on-the-bad-link": share_of_link,
    "003-fig8-hspa-pair-79": of_both_alone({"BATCP3 and BATCP4": ("paper", UNSTEADY)}),
    "003-fig8-hspa-pair-64-to-68": of_both_alone({"BATCP over ADSL1 and HSPA": ("paper", UNSTEADY)}),
    "003-sec5-above-mptcp": of_both_alone({"BATCP": ("paper", "adsl-adsl"), "MPTCP": ("mptcp", "adsl-adsl")}, 5),
}  # fmt: skip


def upload_beside_what_is_kept(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """Ours, kb/s; a repeat that does not keep the download's 3.26 Mb/s has no upload to show."""
    kept, upload = (m("ncr-wlan", measure, "ours") for measure in ("download_during", "upload_during"))
    if kept is None or upload is None:
        return None
    return upload.together(kept, lambda own, download: KILO * own if download >= 3.26 else 0.0)


def none_unlucky(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The lowest of five behind ours, of the fair share; a repeat without 95 % of 23 Mb/s in total has none to show."""
    lowest, total = (m("cell-unlucky", measure, "ours", terminals=5) for measure in ("lowest", "total"))
    if lowest is None or total is None:
        return None
    return lowest.together(total, lambda own, all_of_them: own if all_of_them >= 0.95 * MOST else 0.0)


def fair_behind_ours(m: Measured, name: str, point: Point | None) -> Repeats | None:
    return m("cell-fairness", "if", "ours-cubic", direction="down", nodes=FEW, bytes=SHORT)


BEATEN: Mapping[str, Answers] = {
    "001-fig2b-vegas-60-percent": fair_behind_ours,
    "004-fig6-unfair-from-5": none_unlucky,
    "000-fig6-ncr-download-mixed": figure("ncr-wlan", "download_during", "ours"),
    "000-fig6-ncr-upload-mixed": upload_beside_what_is_kept,
    "000-fig8-ncr-mixed": figure("ncr-wimax", "download_during", "ours"),
    "000-fig10-aggregate": figure("ncr-wimax", "total_during", "ours"),
    "000-fig12-aggregate": figure("ncr-lte", "total_during", "ours"),
    "000-fig14-ncr-download": figure("ncr-testbed", "download_during", "ours"),
    "000-fig14-ncr-aggregate": figure("ncr-testbed", "total_during", "ours"),
    "003-fig8-hspa-pair-64-to-68": of_both_alone({"BATCP over ADSL1 and HSPA": ("ours", UNSTEADY)}),
}
"""Our access point's figure, or our scheduler's, for a claim's `beat`, at each of the claim's points if it has some."""


def asked(claim: Claim) -> frozenset[str]:
    """The experiments whose figures answer a claim."""
    found = ANSWERS.get(claim.id)
    names: set[str] = set()

    def note(experiment: str, measure: str, arm: str, **point: Value) -> Repeats:
        names.add(experiment)
        return Repeats({})

    if found is not None:
        for point in claim.points or (None,):
            for arm in [str(point)] if claim.points_are_arms else claim.sides:
                found(note, arm, point)
    return frozenset(names)


def lacking(claim: Claim) -> list[str]:
    """What the lab has not of what a claim needs."""
    asked = {part.strip() for part in claim.needs.split(";")}
    return [what for what, parts in LACKS.items() if asked & set(parts)]


def answer(claim: Claim, measured: Measured) -> Answer | None:
    """Where the claim's figures are; None: no experiment has them."""
    found = ANSWERS.get(claim.id)
    return None if found is None else lambda name, point: found(measured, name, point)
