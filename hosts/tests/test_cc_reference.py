# SPDX-License-Identifier: Apache-2.0
"""Each control against its definition: on recorded events of real connections the window equals the model's, always."""

import itertools
import os

import pytest

from accesspoint.checks.harness.hosts import cc_reference
from accesspoint.checks.harness.hosts.cc_lab import compare_kernels, uml_lacks
from accesspoint.checks.harness.hosts.cc_recordings import (
    CHANGES,
    OPTIONS,
    SCENE_TARGET,
    SCENES,
    Recordings,
    kept,
    options_of,
    record,
    scene_options,
)
from accesspoint.checks.harness.hosts.cc_reference import OPEN, TIMED_OUT

pytestmark = pytest.mark.realtime

AGREEMENT = 0.05  # between two kernels


@pytest.fixture(scope="module")
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("loading congestion controls and making network namespaces needs root")


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    return record()


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.usefixtures("root")
def test_the_window_is_the_models(name: str, recordings: Recordings) -> None:
    seen = cc_reference.replay(name, options_of(name), recordings[name])
    assert seen.callbacks["cong_avoid"] > 300
    assert seen.moves > 5
    assert seen.recoveries > 3
    if name not in ("reno_maxwin", "tcp_av"):  # these are not told of timeouts by an event
        assert seen.callbacks["cwnd_event"] > 3


@pytest.mark.parametrize("name", OPTIONS)
def test_the_window_was_the_models(name: str) -> None:
    cc_reference.replay(name, options_of(name), kept(name))


@pytest.mark.parametrize("scene", SCENES)
def test_a_recorded_scene_shows_it(scene: str) -> None:
    """tcp_av after an outage, without a first RTT, with an RTT that grows: as its model, and as it should be."""
    events = kept(f"tcp_av_{scene}")
    cc_reference.replay("tcp_av", scene_options(), events)
    begun = events[0]["mstamp"]

    def window(event: cc_reference.Event) -> int:
        """Packets that the target takes at the RTT of the event."""
        return SCENE_TARGET * (event["srtt_us"] // 8) // 8000 // event["mss"]

    if scene == "no_rtt":
        assert events[0]["srtt_us"] == 0
        assert events[1]["ssthresh"] == 0x7FFFFFFF, "slow start, and not from two packets on"
        soon = [event for event in events if event["mstamp"] < begun + 1_500_000]
        assert max(event["cwnd"] for event in soon) >= window(soon[-1]) > 4
        return
    if scene == "longer_rtt":
        first, longest = events[20]["srtt_us"], max(event["srtt_us"] for event in events)
        assert longest > 2 * first
        long = [event for event in events if event["srtt_us"] > 0.9 * longest and event["ca_state"] == OPEN]
        assert long and all(event["ssthresh"] >= window(event) for event in long[-20:])
        return
    timeouts = [event for event in events if event["callback"] == "set_state" and event["arguments"][0] == TIMED_OUT]
    assert len(timeouts) > 10
    assert max(b["mstamp"] - a["mstamp"] for a, b in itertools.pairwise(timeouts)) < 2_500_000, "the timer is bounded"
    again = [event for event in events if event["mstamp"] > timeouts[-1]["mstamp"] and event["cwnd"] >= window(event)]
    assert again[0]["mstamp"] < timeouts[-1]["mstamp"] + 3_000_000


@pytest.mark.parametrize(("name", "option", "value"), CHANGES)
def test_another_definition_is_noticed(name: str, option: str, value: int) -> None:
    with pytest.raises(AssertionError, match="model"):
        cc_reference.replay(name, {**options_of(name), option: value}, kept(name))


def test_another_filter_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cc_reference.Westwood, "SAMPLE_MIN", 300_000)
    with pytest.raises(AssertionError, match="model"):
        cc_reference.replay("westwood", {}, kept("westwood"))


@pytest.mark.usefixtures("root")
def test_agrees_with_the_kernels_own() -> None:
    """vegas and westwood of the kernel under user-mode-linux: rate and RTT on the same link, a few per cent."""
    if lacks := uml_lacks():
        pytest.skip(lacks)
    compared = compare_kernels()
    far = [abs(bpf[key] / own[key] - 1) for bpf, own in compared.values() for key in ("mbit", "rtt_ms")]
    assert max(far) <= AGREEMENT, compared
