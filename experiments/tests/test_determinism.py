# SPDX-License-Identifier: Apache-2.0
"""Differences between two runs of one seed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import determinism, plan, registry, store

SAMPLES = [Sample(t / 10, "ping_ms", 4.0 + t) for t in range(20)]
SAMPLES += [Sample(t / 4, "rate_mbps", 13.0, 0.25, "download") for t in range(8)]


def kept(folder: Path, samples: list[Sample], repeat: int = 1) -> str:
    order = next(one for one in plan.make(registry.find("flood"), True).orders() if one.repeat == repeat)
    folder.mkdir()
    store.write_samples(samples, folder / "samples.parquet")
    (folder / "run.json").write_text(json.dumps(asdict(order) | {"self_check": {"problems": []}}))
    return str(folder)


def test_the_same_is_the_same_in_any_order() -> None:
    assert determinism.differences(SAMPLES, SAMPLES[::-1]) == []


def test_a_difference_is_named_from_its_first_sample_on() -> None:
    other = [replace(s, value=s.value + 1) if s.quantity == "ping_ms" and s.time >= 0.5 else s for s in SAMPLES]
    (found,) = determinism.differences(SAMPLES, other)
    assert (found.quantity, found.source, found.first) == ("ping_ms", "", 0.5)
    assert found.samples == (20, 20) and found.means == pytest.approx((13.5, 14.25))


def test_samples_that_only_one_run_has() -> None:
    (found,) = determinism.differences(SAMPLES, [s for s in SAMPLES if s.source != "download"])
    assert (found.source, found.samples, found.means) == ("download", (8, 0), (13.0, 0.0))


def test_the_command_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, same = kept(tmp_path / "one", SAMPLES), kept(tmp_path / "same", SAMPLES)
    fewer, other = kept(tmp_path / "fewer", SAMPLES[1:]), kept(tmp_path / "other", SAMPLES, repeat=2)
    assert determinism.main([one, same]) == 0 and "the same, 28 samples" in capsys.readouterr().out
    assert (
        determinism.main([one, fewer]) == 1 and "ping_ms: differs from 0.000 s on; 20 and 19" in capsys.readouterr().out
    )
    assert determinism.main([one, other]) == 2
