# SPDX-License-Identifier: Apache-2.0
"""Throughput of one connection over two links: two ADSL lines, and an ADSL line beside an HSPA+ modem."""

from accesspoint.experiments.catalogue.batcp.transfer import File
from accesspoint.experiments.experiment import Arm, Bars, Experiment, Measure, Point, Quick, Reported
from accesspoint.experiments.measure.run_data import Of, Raw, mean
from accesspoint.experiments.scenes.scene import Effect, Link, Multihomed
from accesspoint.topologies.kernels.kernel import VIRTUAL

PAYLOAD = 1448 / 1514
ADSL, HSPA = 633, 355  # kbit/s (section 4.1)
# 20 ms a way as between a home and a server nearby, and a modem's queue of 50 packets.
COMMON = {"delay": "20ms", "limit": 50}
SECOND_LINKS = {
    "adsl-adsl": (ADSL, {"rate": f"{ADSL}kbit"}, None),
    "adsl-hspa": (HSPA, {"rate": f"{HSPA}kbit"}, None),
    "adsl-hspa-jitter": (HSPA, {"rate": f"{HSPA}kbit", "jitter": "10ms"}, None),
    # Bursts, outages, packets that wait for others to be sent again: as unsteady as Fig. 4 has it.
    "adsl-hspa-bursts": (HSPA, {}, Effect("hspa", HSPA * 1000)),
}


def rates(point: Point) -> tuple[int, int]:
    return ADSL, SECOND_LINKS[str(point["links"])][0]


def length(point: Point, arm: Arm) -> float:
    """Seconds that the transfer takes on three fifths of the rate that it may use, with a margin."""
    own = rates(point)
    capacity = own[arm.options["link"] - 1] if "link" in arm.options else sum(own)
    return 3 + int(point["bytes"]) * 8e-3 / (0.6 * PAYLOAD * capacity)


def scene(point: Point, arm: Arm) -> Multihomed:
    _, model, effect = SECOND_LINKS[str(point["links"])]
    return Multihomed(
        (
            Link("phone", "server", {"rate": f"{ADSL}kbit", **COMMON}),
            Link("phone", "server", {**COMMON, **model}, effect=effect),
        ),
        length(point, arm),
        (File(int(point["bytes"]), **arm.options),),
    )


def exploitation(raw: Raw) -> float | None:
    """Part of what both links leave for payload, in per cent (the paper's utilization)."""
    assert raw.point
    got = raw.values("kbit_per_s")
    return 100 * got[0] / (PAYLOAD * sum(rates(raw.point))) if got else None


def share_of(link: str) -> Of:
    """The link's part of the segments that both links have carried, in per cent."""

    def of(raw: Raw) -> float | None:
        all_ = sum(raw.values("segments"))
        return 100 * sum(raw.values("segments", link)) / all_ if all_ else None

    return of


def at(links: str, octets: int) -> Point:
    return {"links": links, "bytes": octets}


EXPERIMENT = Experiment(
    name="batcp",
    title="One connection over two interfaces",
    paper="003, section 4, Fig. 4-8",
    question="How much of two links does one connection get, with the paper's scheduler, this project's and MPTCP?",
    sweep={"links": tuple(SECOND_LINKS), "bytes": (5_000_000, 10_000_000)},
    scene=scene,
    arms=(
        Arm("tcp", "TCP on the first link", "plain", options={"how": "tcp", "link": 1}),
        Arm("second", "TCP on the second link", "plain", options={"how": "tcp", "link": 2}),
        Arm("mptcp", "kernel MPTCP", "plain", options={"how": "mptcp"}),
        Arm("paper", "BATCP, the paper's scheduler", "paper", options={"how": "paper"}),
        Arm("ours", "BATCP, this project's scheduler", "ours", options={"how": "earliest"}),
    ),
    measures=(
        Measure("exploitation", "%", "part of both links' payload", exploitation, "{:.1f}"),
        Measure("first", "%", "segments over the first link", share_of("link1"), "{:.1f}"),
        Measure("second", "%", "and over the second", share_of("link2"), "{:.1f}"),
        Measure("throughput", "kbit/s", "of the file", mean("kbit_per_s"), "{:.0f}"),
    ),
    reported=(
        Reported("exploitation", "paper", 100.0, "section 4.2, Fig. 5", at("adsl-adsl", 5_000_000)),
        Reported("exploitation", "paper", 98.1, "section 4.2, Fig. 5", at("adsl-adsl", 10_000_000)),
        Reported("exploitation", "paper", (64.0, 78.8), "section 4.3, Fig. 8", at("adsl-hspa", 5_000_000)),
        Reported("exploitation", "paper", (68.0, 79.7), "section 4.3, Fig. 8", at("adsl-hspa", 10_000_000)),
        Reported("exploitation", "mptcp", 96.0, "section 4.3, Fig. 8", at("adsl-adsl", 5_000_000)),
    ),
    figures=tuple(
        Bars(f"exploitation-{links}", f"Part of both links' payload: {text}, 5 MB.", ("exploitation",), "part (%)",
             point=at(links, 5_000_000))
        for links, text in (
            ("adsl-adsl", "two ADSL lines"), ("adsl-hspa", "ADSL and HSPA+"),
            ("adsl-hspa-jitter", "ADSL and HSPA+ with 10 ms of jitter"),
            ("adsl-hspa-bursts", "ADSL and HSPA+ with bursts and outages"),
        )
    ),
    repeats=25,
    quick=Quick(sweep={"links": ("adsl-adsl", "adsl-hspa-bursts")}),  # what the claims ask for
    differences=(
        "links are models with the rates of section 4.1 and 20 ms a way, not lines of a provider",
        "bursts and outages are a model of a modem; every repeat has a trace of its own, the same for all arms",
        "the paper's part is of what single transfers reached; here it is of what the links' rates leave for payload",
    ),
    clock=VIRTUAL,
)  # fmt: skip
