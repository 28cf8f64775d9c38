# SPDX-License-Identifier: Apache-2.0
"""Figures of experiments that answer a claim, and what is missing for the other claims. Limits are the claims' alone.

How the arms were chosen, before any result was judged: where the paper compares with its own proposal, both sides have
the same hosts (CUBIC with ECN: the paper names no TCP), so what it calls normal is the arm `fifo`, and its proposal the
arm `ncr-uplink`, with its law and its parameters (R7), in the paper's place; where that was not run, `ncr-paper`, which
regulates the downlink's port, too.
"""

import functools
import operator
from collections.abc import Mapping, Sequence

from accesspoint.experiments.catalogue.ncr import lte, wimax
from accesspoint.experiments.catalogue.ncr.grid import ALONE, DOWNLOADS, THIRDS, UPLOADS
from accesspoint.experiments.catalogue.ncr.settings import DEFAULT as AS_IT_IS
from accesspoint.experiments.catalogue.ncr.settings import SETTINGS
from accesspoint.experiments.experiment import Value
from accesspoint.experiments.verdict import cell_evidence
from accesspoint.experiments.verdict.claims import Answer, Claim, Point, Repeats
from accesspoint.experiments.verdict.evidence import Answers, Measured, both, times

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
"""A thing that the lab lacks -> the parts of `needs` that ask for it."""

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

NORMAL, NCR, NCR_EVERYWHERE = "fifo", "ncr-uplink", "ncr-paper"
KILO = 1000.0


def figure(experiment: str, measure: str, arm: str, factor: float = 1.0) -> Answers:
    """One figure for any arm and point of the claim."""
    return lambda m, name, point: times(m(experiment, measure, arm), factor)


def by_arm(experiment: str, of: Mapping[str, tuple[str, str]]) -> Answers:
    """Figures by the claim's arm. of: arm of the claim -> measure, arm."""
    return lambda m, name, point: m(experiment, *of[name]) if name in of else None


def by_point(experiment: str, arm: str, of: Mapping[Point, str]) -> Answers:
    """Figures by the claim's point. of: point of the claim -> measure."""
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
        return functools.reduce(lambda one, other: both(one, other, operator.add), found)

    quick = over(THIRDS["downloads"], [up for up in THIRDS["uploads"] if up != ALONE])
    return over(DOWNLOADS, UPLOADS) or (quick if quick and quick.form == "quick" else None)


def gain_and_loss(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """Gain or loss in the setting of Fig. 6, the only one for which the text prints all four values."""
    if name == "what the download gains":
        kept, before = (m("ncr-wlan", "download_during", arm) for arm in (NCR, NORMAL))
    else:
        kept, before = (m("ncr-wlan", "upload_during", arm) for arm in (NORMAL, NCR))
    return both(kept, before, lambda one, other: one - other)


def best_setting(m: Measured, name: str, point: Point | None) -> Repeats | None:
    """The figure of the host setting with the highest mean; all settings, or none, were measured."""
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
    """Throughput of one link (kB/s), mean of both file sizes."""
    arm, links = BY_ITSELF[name]
    sizes = [m("batcp", "throughput", arm, links=links, bytes=size) for size in SIZES]
    return times(both(sizes[0], sizes[1], lambda one, other: one + other), 1 / 2 / 8)


def of_both_alone(pairs: Mapping[str, tuple[str, str]], size: int | None = None) -> Answers:
    """Per cent of what the two links carry, each by itself. pairs: arm of the claim -> arm, links. size: MB, where the
    claim has no point for it."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        arm, links = pairs[name]
        octets = int(size or point or 0) * 1_000_000
        found = [m("batcp", "throughput", each, links=links, bytes=octets) for each in (arm, "tcp", "second")]
        alone = both(found[1], found[2], lambda one, other: one + other)
        return times(both(found[0], alone, lambda one, other: one / other), 100)

    return answer


def share_of_link(m: Measured, name: str, point: Point | None) -> Repeats | None:
    better = name == "the interface that performs better"
    return m("batcp", "first" if better else "second", "paper", links=UNSTEADY, bytes=SIZES[0])


def iperf(measure: str, arm: str) -> Answers:
    """Figures of iperf3, the lab's bulk sender; the lab does **not** have FileZilla."""
    return lambda m, name, point: m("ncr-testbed", measure, arm) if "Iperf" in (name, point) else None


LTE = {"normal LTE": NORMAL, "NCR enabled LTE": NCR}

WIMAX = {"normal WiMAX": NORMAL, "NCR enabled WiMAX": NCR}


def in_cell(network: str, at: Mapping[str, int], measure: str, arms: Mapping[str, str]) -> Answers:
    """The figure of the simulated cell, which is nearer to the paper's setting; that of links of the stated rates where
    the cell was not run."""

    def answer(m: Measured, name: str, point: Point | None) -> Repeats | None:
        links, cell = m(f"ncr-{network}", measure, arms[name]), m(f"cell-{network}", measure, arms[name], **at)
        return links if cell is None else cell

    return answer


def in_lte(measure: str, arms: Mapping[str, str] = LTE) -> Answers:
    return in_cell("lte", lte.AT, measure, arms)


def in_wimax(measure: str, arms: Mapping[str, str] = WIMAX) -> Answers:
    return in_cell("wimax", wimax.AT, measure, arms)


WLAN = ("normal WLAN", "NCR")
ANSWERS: Mapping[str, Answers] = {
    **cell_evidence.ANSWERS,
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
    "000-fig8-without-upload": in_wimax("download_alone"),
    "000-fig8-normal-mixed": in_wimax("download_during"),
    "000-fig8-ncr-mixed": in_wimax("download_during"),
    "000-fig9-rtt-download": during("ncr-wimax", "download_rtt", *WIMAX),
    "000-fig9-rtt-upload": during("ncr-wimax", "upload_rtt", *WIMAX),
    "000-fig9-rtt-upload-order": during("ncr-wimax", "upload_rtt", *WIMAX),
    "000-fig9-uplink-queue": during("ncr-wimax", "queue", *WIMAX),
    "000-fig10-aggregate": in_wimax("total_during"),
    "000-fig10-aggregate-order": in_wimax("total_during"),
    "000-fig11-normal-mixed": in_lte("download_during"),
    "000-fig11-ncr-mixed": in_lte("download_during"),
    "000-fig12-aggregate": in_lte("total_during"),
    "000-fig12-aggregate-order": in_lte("total_during"),
    "000-fig12-lte-no-sink": lambda m, name, point: in_lte(
        "download_alone" if point == "[1,13] s" else "total_during"
    )(m, name, point),
    "000-fig12-sink-wlan": by_arm("ncr-wlan", {
        "normal WLAN before the upload": ("download_alone", NORMAL),
        "normal WLAN while the upload runs": ("total_during", NORMAL),
    }),
    "000-fig12-sink-wimax": lambda m, name, point: in_wimax(
        "download_alone" if name == "normal WiMAX before the upload" else "total_during", {name: NORMAL}
    )(m, name, point),
    "000-fig14-normal-aggregate": iperf("total_during", NORMAL),
    "000-fig14-ncr-download": iperf("download_during", NCR),
    "000-fig14-ncr-aggregate": iperf("total_during", NCR),
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
    """This access point's upload, kb/s; a repeat that does not keep the download's 3.26 Mb/s counts as 0."""
    kept, upload = (m("ncr-wlan", measure, "ours") for measure in ("download_during", "upload_during"))
    if kept is None or upload is None:
        return None
    return upload.together(kept, lambda own, download: KILO * own if download >= 3.26 else 0.0)


BEATEN: Mapping[str, Answers] = {
    **cell_evidence.BEATEN,
    "000-fig6-ncr-download-mixed": figure("ncr-wlan", "download_during", "ours"),
    "000-fig6-ncr-upload-mixed": upload_beside_what_is_kept,
    "000-fig8-ncr-mixed": in_wimax("download_during", dict.fromkeys(WIMAX, "ours")),
    "000-fig10-aggregate": in_wimax("total_during", dict.fromkeys(WIMAX, "ours")),
    "000-fig12-aggregate": in_lte("total_during", dict.fromkeys(LTE, "ours")),
    "000-fig14-ncr-download": figure("ncr-testbed", "download_during", "ours"),
    "000-fig14-ncr-aggregate": figure("ncr-testbed", "total_during", "ours"),
    "003-fig8-hspa-pair-64-to-68": of_both_alone({"BATCP over ADSL1 and HSPA": ("ours", UNSTEADY)}),
}
"""This access point's figure, or this project's scheduler's, for a claim's `beat`, at each of the claim's points if it
has some."""


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
    """Things that a claim needs and the lab lacks."""
    asked = {part.strip() for part in claim.needs.split(";")}
    return [what for what, parts in LACKS.items() if asked & set(parts)]


def answer(claim: Claim, measured: Measured) -> Answer | None:
    """Function of an arm and a point to the claim's figures; None: no experiment has them."""
    found = ANSWERS.get(claim.id)
    return None if found is None else lambda name, point: found(_in_place(measured), name, point)


def _in_place(measured: Measured) -> Measured:
    """Measured figures, where NCR has those of the arm at every port if it was not run in its own place."""

    def answer(experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        found = measured(experiment, measure, arm, **point)
        return measured(experiment, measure, NCR_EVERYWHERE, **point) if found is None and arm == NCR else found

    return answer
