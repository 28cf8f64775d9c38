# SPDX-License-Identifier: Apache-2.0
"""The papers' transports in ns-3 against the definitions that their BPF programs are tested against, on the same
events: those that a Linux kernel told the programs (hosts/tests/recordings). And the rule of paper 002's middleware
against the vectors that Rust's model makes (hosts/tests/cwnd_vectors.json)."""

import ctypes
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from accesspoint.checks.harness.hosts import cc_reference
from accesspoint.checks.harness.hosts.cc_recordings import CHANGES, KEPT, OPTIONS, SCENE_TARGET, SCENES, kept
from accesspoint.topologies.ns3 import virtual
from accesspoint.topologies.requirements import ROOT

TYPES = {  # the control of hosts/bpf -> TypeId, attributes by the names of its options, with the defaults there
    "vegas": ("ns3::TcpPacketVegas", {"alpha": ("Alpha", 2), "beta": ("Beta", 4), "gamma": ("Gamma", 1)}),
    "vegas_fair": (
        "ns3::TcpVegasFair",
        {
            "alpha": ("Alpha", 2), "beta": ("Beta", 4), "gamma": ("Gamma", 1), "pause": ("Pause", 1000),
            "introduction": ("Introduction", 5000), "more_alpha": ("MoreAlpha", 1), "more_beta": ("MoreBeta", 2),
        },
    ),
    "reno_maxwin": ("ns3::TcpRenoMaxwin", {"bound": ("Bound", 10)}),
    "tcp_av": (
        "ns3::TcpAv",
        {
            "target": ("Target", 0), "loss_limit": ("LossLimit", 10), "timeout_limit": ("TimeoutLimit", 2),
            "rest": ("Rest", 5000), "ceiling": ("Ceiling", 0), "patience": ("Patience", 1500),
        },
    ),
}  # fmt: skip
TIMES = ("Pause", "Rest", "Patience")  # in ms
RECORDED = (
    ("now", ctypes.c_int64), ("sinceSent", ctypes.c_int64), ("rtt", ctypes.c_int64), ("srtt", ctypes.c_int64),
    ("sent", ctypes.c_uint64),
    *((name, ctypes.c_uint32) for name in (
        "window", "threshold", "towards", "priorWindow", "acked", "una", "next", "segment", "lost", "delivered",
        "marked", "mostOut", "limited", "state",
    )),
)  # fmt: skip


class Recorded(ctypes.Structure):
    _fields_ = RECORDED


@pytest.fixture(scope="module")
def library(ns3: None) -> ctypes.CDLL:
    del ns3
    found = virtual.load()
    found.replay_new.restype, found.replay_new.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    found.replay_call.restype = ctypes.c_uint32
    found.replay_call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.POINTER(Recorded)]
    found.replay_free.argtypes = [ctypes.c_void_p]
    return found


def transport(name: str, options: dict[str, int]) -> str:
    kind, attributes = TYPES[name]
    words = []
    for option, (attribute, default) in attributes.items():
        value = options.get(option, default)
        words.append(f"{attribute}={value}ms" if attribute in TIMES else f"{attribute}={value}")
    return f"{kind}[{'|'.join(words)}]"


@dataclass
class InNs3:
    """A congestion control of the project in ns-3, with the interface of its model."""

    library: ctypes.CDLL
    name: str
    options: dict[str, int]
    cwnd: int = 0
    ssthresh: int = 0
    towards: int = 0
    _control: Any = None

    def _call(self, callback: str, event: cc_reference.Event, argument: int = 0) -> int:
        if self._control is None:
            self._control = self.library.replay_new(transport(self.name, self.options).encode())
        acked = event["arguments"][1] if callback in ("cong_avoid", "pkts_acked") else 0
        rtt = cc_reference.signed(event["arguments"][0]) if callback == "pkts_acked" else 0
        idle = (event["jiffies"] - event["lsndtime"]) % (1 << 32)
        una = event["arguments"][0] if callback == "cong_avoid" else event["snd_una"]
        told = Recorded(
            event["mstamp"], idle * 1_000_000 // cc_reference.HZ, rtt, event["srtt_us"] // 8, event["bytes_sent"],
            self.cwnd, self.ssthresh, self.towards, event["prior_cwnd"], acked, una, event["snd_nxt"], event["mss"],
            event["lost"], event["delivered"], event.get("delivered_ce", 0),  # only tcp_av looks at marks
            event["max_packets_out"], event["cwnd_limited"], event["ca_state"],
        )  # fmt: skip
        answer = self.library.replay_call(self._control, callback.encode(), argument, ctypes.byref(told))
        self.cwnd, self.towards = told.window, told.towards
        if told.threshold * event["mss"] + event["mss"] <= 0xFFFFFFFF:  # else ns-3 has no more than "very high"
            self.ssthresh = told.threshold
        return int(answer)

    def init(self, event: cc_reference.Event) -> None:
        self._call("init", event)

    def pkts_acked(self, event: cc_reference.Event) -> None:
        self._call("pkts_acked", event)

    def cong_avoid(self, event: cc_reference.Event) -> None:
        self._call("cong_avoid", event)

    def set_state(self, event: cc_reference.Event) -> None:
        self._call("set_state", event, event["arguments"][0])

    def cwnd_event(self, event: cc_reference.Event) -> None:
        self._call("cwnd_event", event, event["arguments"][0])

    def loss_threshold(self, event: cc_reference.Event) -> int:
        return self._call("ssthresh", event)

    def undone(self, event: cc_reference.Event) -> int:
        """ns-3 undoes nothing: the definition's own answer."""
        model = cc_reference.RenoMaxwin if self.name == "reno_maxwin" else cc_reference.Reno
        return model(self.options, self.cwnd, self.ssthresh).undone(event)


@pytest.fixture
def ours(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in TYPES:
        monkeypatch.setitem(cc_reference.MODELS, name, lambda options, name=name: InNs3(library, name, options))
    yield


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.usefixtures("ours")
def test_the_window_is_the_one_that_the_definition_has(name: str) -> None:
    events = kept(name)
    defaults = {option: default for option, (_, default) in TYPES[name][1].items()}
    seen = cc_reference.replay(name, {**defaults, **OPTIONS[name]}, events)
    assert seen.callbacks["cong_avoid"] > 100 and seen.moves > 5


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.usefixtures("ours")
def test_the_window_is_the_definitions_in_what_happens_to_a_link(scene: str) -> None:
    defaults = {option: default for option, (_, default) in TYPES["tcp_av"][1].items()}
    cc_reference.replay("tcp_av", {**defaults, "target": SCENE_TARGET}, kept(f"tcp_av_{scene}"))


@pytest.mark.parametrize(("name", "option", "value"), [change for change in CHANGES if change[0] in TYPES])
@pytest.mark.usefixtures("ours")
def test_another_definition_is_noticed(name: str, option: str, value: int) -> None:
    defaults = {known: default for known, (_, default) in TYPES[name][1].items()}
    with pytest.raises(AssertionError, match="model"):
        cc_reference.replay(name, {**defaults, **OPTIONS[name], option: value}, kept(name))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    "lost",
    [[], [30], [30, 31, 32], [30, 34, 40, 41], [30, 60, 90], list(range(25, 31))],
    ids=["none", "one", "three", "scattered", "in turn", "many"],
)
def test_what_is_sent_and_lost_is_counted(library: ctypes.CDLL, name: str, lost: list[int]) -> None:
    """Counts agree with the headers of a real connection: a SYN is neither, a fast retransmission is both."""
    numbers, counts = (ctypes.c_uint32 * len(lost))(*lost), (ctypes.c_uint64 * 4)()
    arrived = library.counted(transport(name, {}).encode(), 200_000, numbers, ctypes.c_size_t(len(lost)), counts)
    sent, again, real, real_again = counts
    assert arrived == 200_000
    assert real_again >= len(lost)
    assert (sent, again) == (real, real_again)


def test_what_a_timeout_repairs_is_sent_and_not_lost(library: ctypes.CDLL) -> None:
    numbers, counts = (ctypes.c_uint32 * 2)(200, 201), (ctypes.c_uint64 * 4)()
    assert library.counted(transport("tcp_av", {}).encode(), 200_000, numbers, ctypes.c_size_t(2), counts) == 200_000
    sent, again, real, real_again = counts
    assert (sent, again) == (real, 0)
    assert real_again >= 2


def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((KEPT.parent / "cwnd_vectors.json").read_text())
    return found


def test_the_middlewares_windows_are_those_of_the_model(library: ctypes.CDLL) -> None:
    library.cwnd_ideal.argtypes = [ctypes.c_double, ctypes.c_double, *4 * [ctypes.c_uint32]]
    library.cwnd_ratio.restype = ctypes.c_double
    for one in vectors()["windows"]:
        told = one["mbit_per_s"], one["exponent"], one["terminals"], one["connections"], one["rtt_us"]
        assert library.cwnd_ideal(*told, 2) == one["window"], one
        as_printed = library.cwnd_ideal(*told, 1)
        assert as_printed == one["window"] if one["window"] > 2 else as_printed in (1, 2), one
    for one in vectors()["ratios"]:
        rtt = library.cwnd_path_rtt(one["rtt_us"], one["min_rtt_us"], one["window"])
        assert rtt == one["path_rtt_us"], one
        assert library.cwnd_ratio(rtt, one["min_rtt_us"]) == pytest.approx(one["ratio"], rel=1e-12), one


@pytest.mark.parametrize("turns", [True, False])
def test_the_middlewares_bounds_are_those_of_the_model(library: ctypes.CDLL, turns: bool) -> None:
    """Without turns it is the paper's rule as printed, which the model has for the first two seconds."""
    library.cwnd_bounds.argtypes = [ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    names = ["none", "one", "ideal"]
    for one in vectors()["controls"]:
        count = len(one["us"])
        us, ratios = (ctypes.c_int64 * count)(*one["us"]), (ctypes.c_double * count)(*one["ratios"])
        bounds = (ctypes.c_uint32 * count)()
        library.cwnd_bounds(turns, us, ratios, bounds, count)
        found = [names[bound] for bound in bounds]
        if turns:
            assert found == one["bounds"], one
            continue
        on = False
        for ratio, bound in zip(one["ratios"], found, strict=True):
            on |= ratio > 6.0
            assert bound == ("none" if not on else "one" if ratio > 5.0 else "ideal")


def test_the_vectors_are_named_where_they_are_made() -> None:
    assert "cwnd_vectors.json" in (ROOT / "hosts/src/cwnd/vectors.rs").read_text()
