# SPDX-License-Identifier: Apache-2.0
"""Audit of docs/results: samples, commits and code of each summary, and what the pages say of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from accesspoint.experiments.verdict import audit, overview, recompute
from accesspoint.experiments.verdict.audit import Audit
from accesspoint.topologies.requirements import ROOT

RESULTS = ROOT / "docs/results"
NAME = "cell-effective"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with one summary that is audited."""
    for folder, suffix in (("raw", "parquet"), ("summaries", "json")):
        (tmp_path / folder).mkdir()
        shutil.copy(RESULTS / folder / f"{NAME}.{suffix}", tmp_path / folder)
    audit.keep(tmp_path)
    return tmp_path


def changed(results: Path, **fields: Any) -> Audit:
    """Return the audit of the summary with some fields in place of its own."""
    file = results / f"summaries/{NAME}.json"
    summary = json.loads(file.read_text()) | fields
    file.write_text(json.dumps(summary))
    return audit.look(summary, results)


whole_history = pytest.mark.skipif(not audit.whole_history(), reason="the history is not here: git fetch --unshallow")


@whole_history
def test_audit_is_what_history_and_samples_say() -> None:
    message = "renew it with `python -m accesspoint.experiments.verdict.judge` and tools/site/figures.py"
    assert audit.kept(RESULTS) == audit.look_at_all(RESULTS), message


def test_summaries_since_the_rule_are_audited() -> None:
    assert audit.new_and_incomplete(RESULTS, audit.kept(RESULTS)) == []


def test_first_pages_say_what_is_missing() -> None:
    testbed = audit.kept(RESULTS)["peers-testbed"]
    for page in ("README.md", "docs/index.md", "docs/results/peers-testbed.md"):
        assert all(line in (ROOT / page).read_text() for line in testbed.head())


def test_commits_stay_as_kept_without_the_history(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit.provenance, "shallow", lambda: True)
    monkeypatch.setattr(audit.provenance, "git", lambda *words: False)
    before = audit.kept(results)
    audit.keep(results)
    assert audit.kept(results) == before and before[NAME].commits


def test_experiment_of_a_file_outside_has_no_scene_here(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    monkeypatch.setattr(audit.registry, "file", lambda name: file)
    assert audit.SCENE not in changed(results).changed


@whole_history
def test_summary_with_samples_and_a_commit_that_is_there_is_complete(results: Path) -> None:
    found = audit.kept(results)[NAME]
    assert found.complete and found.missing == "" and "its scene" in found.changed
    assert found.head() == [f"**Older code**: topologies/ns3 and its scene changed since {found.of('there')[0]}.", ""]


@whole_history
def test_commit_that_is_not_there_is_named(results: Path) -> None:
    found = changed(results, versions={"commit": "0123456, 62c0cb6-dirty"})
    assert found.of("gone") == ["0123456"] and found.of("dirty") == ["62c0cb6-dirty"] and not found.complete
    assert found.head()[0] == (
        "**Not audited**: commit 0123456 is not in the history of this repository; "
        "files differed from 62c0cb6-dirty when it was measured."
    )


def test_summary_without_commit_or_with_other_samples_is_incomplete(results: Path) -> None:
    assert changed(results, versions={}).missing == "it names no commit"
    raw = json.loads((results / f"summaries/{NAME}.json").read_text())["raw"]
    assert not changed(results, raw=raw | {"sha256": "0" * 64}).samples
    (results / raw["file"]).unlink()
    assert "its samples are not in this repository" in changed(results, raw=raw).missing


@whole_history
def test_check_counts_and_refuses_what_is_new(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recompute.check({}, strict=True, results=results) == 0
    changed(results, versions={"commit": "0123456"}, started="2026-11-27T10:00:00+00:00")
    audit.keep(results)
    capsys.readouterr()
    assert recompute.check({}, strict=False, results=results) == 0
    said = capsys.readouterr().out
    assert f"  commit not there: {said.split()[0]} on 1 pages: {NAME}\n" in said and "  differ: 0\n" in said
    assert recompute.check({}, strict=True, results=results) == 1
    assert f"error: {NAME}: commit 0123456 is not in the history" in capsys.readouterr().out
    changed(results, started=f"{audit.SINCE}T00:00:00+00:00")
    assert recompute.check({}, strict=False, results=results) == 1
    assert recompute.check({NAME: 3}, strict=False, results=results) == 1


@whole_history
def test_check_refuses_pages_that_say_otherwise(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = results / audit.FILE
    file.write_text(file.read_text().replace('"there"', '"gone"'))
    assert recompute.check({}, strict=False, results=results) == 1
    assert "error: pages say otherwise: renew them" in capsys.readouterr().out


def test_table_of_all_comparisons_names_those_that_are_not_audited() -> None:
    found = {"flood": Audit(False, {"c9dd52e": "gone"}), "rrul": Audit(True, {"62c0cb6": "there"})}
    page = overview.page({}, found)
    assert "**Not audited**, for the reason at the head of its page: flood." in page
