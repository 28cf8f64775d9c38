# SPDX-License-Identifier: Apache-2.0
"""Each control against its definition: on recorded events of real connections the window equals the model's, always."""

import contextlib
import json
import os
import tempfile
import time
from typing import IO

import pytest

from hosts.tests import cc_reference
from hosts.tests.cc_lab import Transfer, compare_kernels, kernel_name, loaded, rows, uml_lacks
from topologies.paths import Paths

# Sessions with pauses, so that all of it happens: slow start, avoidance, losses, timeouts, idle restarts.
PLAN = "30000b,wait1.1s,30000b,wait0.4s,3s,wait1.3s,20000b,wait1.1s,4s"
# What of a definition has a default that a short recording does not reach.
OPTIONS: dict[str, dict[str, int]] = {
    "vegas": {},
    "vegas_fair": {"introduction": 500_000},
    "westwood": {},
    "reno_maxwin": {},
    "tcp_av": {"target": 2500, "loss_limit": 3, "rest": 400, "timeout_limit": 0},
}
Recordings = dict[str, list[cc_reference.Event]]
AGREEMENT = 0.05  # between two kernels


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("loading congestion controls and making network namespaces needs root")


def options_of(name: str) -> dict[str, int]:
    """All options, with the defaults that `hosts cc list` shows."""
    (row,) = (row for row in rows("list") if row["name"] == name)
    return {**row["options"], **OPTIONS[name]}


def read(file: IO[str]) -> list[cc_reference.Event]:
    file.seek(0)
    return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    """Events of one connection by control, over links of 3 Mb/s with losses and two black holes, all at once."""
    with contextlib.ExitStack() as stack:
        paths = stack.enter_context(Paths())
        a, b = paths.host("a"), paths.host("b")
        files, links = {}, []
        for name, options in OPTIONS.items():
            files[name] = stack.enter_context(tempfile.TemporaryFile("w+"))
            words = [f"{option}={value}" for option, value in options.items()]
            stack.enter_context(loaded(name, *words, record=files[name]))
            links.append(paths.link(a, b, rate="3mbit", limit=12, delay="20ms", loss=0.01))
        transfers = [Transfer(link, kernel_name(name), PLAN) for name, link in zip(OPTIONS, links, strict=True)]
        for start, seconds in ((4.0, 0.7), (3.5, 1.5)):
            time.sleep(start)
            for link in links:
                link.blackhole()
            time.sleep(seconds)
            for link in links:
                link.restore()
        for transfer in transfers:
            result = transfer.result()
            assert result["received"] == result["bytes"]
        time.sleep(0.2)  # the last events are on their way
        return {name: read(file) for name, file in files.items()}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_window_is_the_models(name: str, recordings: Recordings) -> None:
    seen = cc_reference.replay(name, options_of(name), recordings[name])
    assert seen.callbacks["cong_avoid"] > 300
    assert seen.moves > 5
    assert seen.recoveries > 3
    if name != "reno_maxwin":  # it is not told of timeouts
        assert seen.callbacks["cwnd_event"] > 3


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("vegas", "alpha", 4),
        ("vegas", "beta", 3),
        ("vegas_fair", "more_alpha", 1000),  # it grows whatever the queue, as long as it is introduced
        ("vegas_fair", "pause", 5000),
        ("reno_maxwin", "bound", 9),
        ("tcp_av", "target", 2600),
        ("tcp_av", "loss_limit", 0),  # any loss is too many
    ],
)
def test_another_definition_is_noticed(name: str, option: str, value: int, recordings: Recordings) -> None:
    with pytest.raises(AssertionError, match="model"):
        cc_reference.replay(name, {**options_of(name), option: value}, recordings[name])


def test_another_filter_is_noticed(recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cc_reference.Westwood, "SAMPLE_MIN", 300_000)
    with pytest.raises(AssertionError, match="model"):
        cc_reference.replay("westwood", {}, recordings["westwood"])


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
