# SPDX-License-Identifier: Apache-2.0
"""Each control against its definition: on recorded events of real connections the window equals the model's, always."""

import os

import pytest

from hosts.tests import cc_reference
from hosts.tests.cc_lab import compare_kernels, uml_lacks
from hosts.tests.cc_recordings import CHANGES, OPTIONS, Recordings, kept, options_of, record

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
    if name != "reno_maxwin":  # it is not told of timeouts
        assert seen.callbacks["cwnd_event"] > 3


@pytest.mark.parametrize("name", OPTIONS)
def test_the_window_was_the_models(name: str) -> None:
    cc_reference.replay(name, options_of(name), kept(name))


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
    for attempt in range(3):  # another kernel's clock suffers when the machine is busy
        compared = compare_kernels()
        far = [abs(bpf[key] / own[key] - 1) for bpf, own in compared.values() for key in ("mbit", "rtt_ms")]
        if max(far) <= AGREEMENT:
            return
        print(f"attempt {attempt}: {compared}")
    raise AssertionError(compared)
