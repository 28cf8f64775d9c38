# SPDX-License-Identifier: Apache-2.0
"""Rows of benchmarks follow from samples, published summaries and tables from both."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.bench import publish, summary
from accesspoint.checks.bench.controller import agent, fleet, service
from accesspoint.checks.bench.hosts import batcp_links
from accesspoint.checks.bench.hosts.__main__ import names as parts_of_hosts
from accesspoint.checks.bench.report import Row
from accesspoint.checks.bench.switch import __main__ as switch
from accesspoint.experiments.verdict import audit
from accesspoint.topologies.requirements import ROOT, LabError

RESULTS = ROOT / "docs/results"
SWITCH = publish.COMPONENTS[0]
MACHINE = {"system": "Debian", "processor": "Core", "cores": 2, "memory": "1024 MiB", "kernel": "6.1"}
RECORD: dict[str, Any] = {
    "commit": "1a2b3c4", "started": "2026-11-30T10:00:00+00:00", "machine": MACHINE, "load": [0.1, 0.2],
    "beside": False, "raw": {}, "rows": [],
}  # fmt: skip
whole_history = pytest.mark.skipif(not audit.whole_history(), reason="the history is not here: git fetch --unshallow")


def target(peak: float, latency: float) -> dict[str, Any]:
    """Return samples of a target in three rounds, the last of which is the fastest."""
    rounds = [peak * factor for factor in (0.9, 1.0, 1.2)]
    return {
        "peak_pps": {"60": rounds, "1500": rounds},
        "overload_pps": [[[100.0, 200.0, 90.0], [100.0, 210.0, 99.0], [100.0, 190.0, 95.0]]] * 3,
        "latency_p50_us": [latency] * 3,
        "latency_p99_us": [2 * latency] * 3,
    }


RUN = {"insert_s": 0.4, "modify_ms": [0.4, 0.5, 0.9], "read_ms": [0.6, 0.7, 0.8], "million_bytes": 263_000_000}
PACKETS = {"1_flow": [100.0], "1000_flows": [100.0, 125.0, 200.0], "1000_flows_traced": [250.0], "65536_flows": [200.0]}
RAW: dict[str, dict[str, Any]] = {
    "switching": {"forwarder": target(1000.0, 30.0), "apswitch": target(800.0, 45.0)},
    "memory": {"resident_bytes": {"apswitch": 37_000_000}},
    "pipeline": {"packet_ns": PACKETS | {"1_flow_reference": [12_000.0]}, "load_ns": [7e6, 8e6]},
    "p4runtime": {"apswitch": [RUN]},
    "beside_writes": {
        "peak_pps": 1000.0,
        "not_offered": {},
        "trials": {"1": {"alone": [0.0] * 5, "beside": [0.0, 0.0, 0.0, 0.0, 0.1], "writes": [2e5] * 5}},
    },
}
"""Samples of each part of the switch."""
VALUES = {
    "switch_of_forwarder": 0.8, "switch_of_forwarder_1500": 0.8, "overload_of_peak": 0.95, "latency_of_forwarder": 1.5,
    "memory_mb": 37.0, "memory_mpps": 8.0, "compiled_of_interpreter": 120.0, "trace_watched": 0.5, "load_ms": 7.5,
    "inserts_per_s": 500_000.0, "modify_200_ms": 0.5, "read_1000_ms": 0.7, "million_mb": 263.0,
    "loss_beside_writes": 0.0, "throughput_beside_writes": 1.0,
}  # fmt: skip


def first_commit() -> str:
    words = ["git", "rev-list", "--max-parents=0", "HEAD"]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()[0]


def measured(folder: Path, raw: dict[str, dict[str, Any]], **provenance: Any) -> Path:
    """Keep samples as a run at the first commit would, and return the folder of its summary."""
    commit = provenance.pop("commit", None) or first_commit()
    begun: dict[str, Any] = {
        "commit": commit,
        "started": "2026-11-30T10:00:00+00:00",
        "machine": MACHINE,
        "load": [0.1],
    }
    begun |= {"beside": False, **provenance}
    for name, own in raw.items():
        summary.keep(folder / "switch.json", name, switch.PARTS[name], own, begun)
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results where nothing is published, with a table by hand."""
    names = ", ".join(RAW)
    for page in {component.page for component in publish.COMPONENTS}:
        (tmp_path / page).write_text("# Page\n\nText.\n")
    (tmp_path / "speed.md").write_text(
        f"# Speed\n\nText.\n\n<!-- bench: {names} -->\n**Not audited**: its samples are not in this repository.\n\n"
        "| by hand | 1 |\n<!-- bench: end -->\n\nMore.\n"
    )
    return tmp_path


def problems(results: Path, capsys: pytest.CaptureFixture[str], strict: bool = False) -> list[str]:
    """Return the errors of a check."""
    capsys.readouterr()
    code = publish.check(results, strict)
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("error: ")]
    assert code == bool(found)
    return found


def changed(results: Path, old: str, new: str, file: str = "bench/switch.json") -> None:
    path = results / file
    assert path.read_text().count(old) >= 1
    path.write_text(path.read_text().replace(old, new, 1))


def test_published_tables_follow_from_their_samples() -> None:
    assert publish.check(RESULTS, strict=False) == 0, "renew: python -m accesspoint.checks.bench.publish --recompute"


@pytest.mark.parametrize("component", publish.COMPONENTS, ids=lambda component: component.name)
def test_page_has_a_place_for_each_part(component: publish.Component) -> None:
    folder = ROOT / "checks/bench" / component.name
    parts = {path.stem for path in folder.glob("*.py") if "\ndef rows(raw: Raw)" in path.read_text()}
    placed = [match[1].split(", ") for match in publish.REGION.finditer((RESULTS / component.page).read_text())]
    assert parts and sorted(parts) == sorted(name for names in placed for name in names)
    assert component.name != "hosts" or parts == HOSTS.keys() == set(parts_of_hosts())


def test_rows_follow_from_samples_alone() -> None:
    rows = {row.name: row for name, raw in RAW.items() for row in summary.rows(switch.PARTS[name], raw)}
    assert {name: row.value for name, row in rows.items()} == VALUES
    assert rows["switch_of_forwarder"].rounds == (0.8, 0.8, 0.8) and rows["memory_mb"].rounds == ()
    assert rows["modify_200_ms"].rounds == (0.4, 0.5, 0.9) and rows["overload_of_peak"].met
    peers = RAW["switching"] | {"bmv2": target(40.0, 100.0), "beside": target(400.0, 90.0)}
    rows = {row.name: row for row in summary.rows(switch.switching, peers)}
    names = ("switch_of_bmv2", "switch_of_beside", "latency_of_beside")
    assert [rows[name].value for name in names] == [20.0, 2.0, 0.5]
    assert rows.keys() == set(switch.switching.NAMES)


TICKS = {
    "seconds": 10.0, "switch_cpu_s": 2.0, "cpu_s": [0.9, 0.1], "ticks": 998, "missed": 2, "late": 499,
    "tick_ms_p50": 1.2, "tick_ms_p99": 4.2, "timer_late_ms": [0.1] * 99 + [3.0],
}  # fmt: skip
REPLICA = {"seen": 1000, "answers_ms": [9.0, 7.0, 8.0], "metrics_s": [0.1, 0.3], "memory_mb": 190.0}


def test_rows_of_the_controller_follow_from_samples_alone() -> None:
    raw = {
        "agent_200": {"own": TICKS, "beside": TICKS | {"missed": 0}},
        "agent_1000": {"own": TICKS | {"ticks": 999, "missed": 1}},
        "failover_seconds": {"own": 0.6, "beside": 0.4},
    }
    rows = {row.name: row for row in agent.rows(raw)}
    assert {name: rows[f"agent_200_{name}"].value for name in agent.TEXTS} == {
        "cores": 0.1, "p50_ms": 1.2, "p99_ms": 4.2, "missed": 0.002, "late": 0.5, "us": pytest.approx(1002, abs=0.1),
        "switch_cores": 0.2, "timer_late_ms_p99": 3.0,
    }  # fmt: skip
    assert rows["agent_missed"].value == 0.002 and rows["beside_agent_missed"].value == 0.0
    found = {name: rows[name].verdict for name in ("agent_200_cores", "agent_missed", "failover_seconds")}
    assert found == {"agent_200_cores": "pass", "agent_missed": "fail", "failover_seconds": "fail"}
    assert not [row for name, row in rows.items() if name.startswith("beside_") and row.goal is not None]
    answers = {"answers_ms": [float(number) for number in range(100)], "charts_ms": [20.0, 40.0, 30.0]}
    ticks = {"tick_ms_p99_without": 2.0, "tick_ms_p99_beside": 3.0}
    assert {row.name: row.value for row in service.rows({"history_bytes": 14_000_000, **answers, **ticks})} == {
        "history_gb_a_day": 0.35, "chart_ms": 30.0, "api_ms_p99": 99.0, "ticks_beside_api_of_without": 1.5,
    }  # fmt: skip
    raw = {fleet.REPLICA: REPLICA | {"cpu_s": 3.0, "seconds": 20.0}, fleet.FAILOVER: 0.2}
    assert [(row.name, row.value, row.verdict) for row in fleet.rows(raw)] == [
        ("fleet_1000_seen", 1000, "pass"), ("fleet_1000_api_ms_p99", 9.0, "pass"), ("fleet_1000_mb", 190.0, "pass"),
        ("fleet_1000_metrics_seconds", 0.3, "pass"), ("fleet_1000_cores", 0.15, "pass"),
        ("agent_failover_seconds", 0.2, "pass"),
    ]  # fmt: skip


ARMS = {"earliest": [0.9, 1.0, 0.99], "paper": [0.7] * 3, "paper_rtt": [0.8] * 3, "mptcp": [0.95] * 3, "tcp": [0.5] * 3}
COST = {"costs": [0.2, 0.4], "rates": [20.0, 30.0]}
CELL = "6 Mbit/s against 4, 37 packets, 0.0% lost, no ECN"
OTHER = "10 Mbit/s against 9, 284 packets, 0.5% lost, ECN"
HOSTS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "batcp": ({"share_of_ceiling": {"loss_5mb": ARMS}, "unshaped_gbit": ARMS}, {"loss_5mb": 0.99, "unshaped": 0.99}),
    "batcp_links": (
        {
            "mbit": {pair.name: {"batcp": [30.0, 36.0], "mptcp": [30.0, 30.0]} for pair in batcp_links.PAIRS}
            | {fault[0]: {"both": [38.0], "alone": [19.0]} for fault in batcp_links.FAULTS}
        },
        {pair.name: 1.1 for pair in batcp_links.PAIRS}
        | {f"batcp_fault_{name}": 2.0 for name, *_ in batcp_links.FAULTS},
    ),
    "batcp_memory": (
        {"gbit": {"batcp": [24.0], "sealed": [9.0], "mptcp": [12.0], "two_tcp": [32.0], "tcp": [18.0]}},
        {"batcp_of_mptcp": 2.0, "batcp_of_two_tcp": 0.75, "batcp_encrypted_of_mptcp": 0.75},
    ),
    "batcp_page": (
        {"plain": [[[0.2, 0.1, 0.3], 2.0]], "proxied": [[[0.1, 0.3, 0.1], 1.0]]},
        {"batcp_page_first_byte": 0.5, "batcp_page_first_bytes": 0.5, "batcp_page_whole": 0.5},
    ),
    "batcp_proxy": (
        {"direct": [5e9, 4e9], "socks": [1e9, 1e9], "caught": [2e9, 1e9]},
        {"direct_gbit": 4.5, "socks_gbit": 1.0, "caught_gbit": 1.5}
        | {"socks_of_direct": 0.225, "caught_of_direct": 0.325},
    ),
    "batcp_uneven": ({"share_of_ceiling": ARMS}, {"uneven_50_20": 0.99}),
    "cc": (
        {
            "arms": {"cubic": COST, "vegas": COST | {"costs": [0.3, 0.6]}},
            "kernels_own": {"vegas": {"bpf": {"mbit": 3.8, "rtt_ms": 116.0}, "own": {"mbit": 3.8, "rtt_ms": 58.0}}},
        },
        {"vegas_cost_of_cubic": 1.5, "vegas_mbit_of_kernels_own": 1.0, "vegas_rtt_ms_of_kernels_own": 2.0},
    ),
    "cwnd": (
        {"controlled": [0.004, 0.005, 0.003], "bounded": [100, 99, 100], "observed": [0.002] * 3, "text": [0.008] * 3},
        {"cwnd_percent": 0.4, "cwnd_observe_percent": 0.2, "cwnd_of_text": 0.5, "cwnd_bounded": 100.0},
    ),
    "cwnd_cell": (
        {"64": {"alone": [18.0], "plain": [10.0, 10.0], "held": [9.0, 9.0], "fit": {}}},
        {"cwnd_of_plain_64_ms": 0.9, "cwnd_jain_64_ms": 1.0},
    ),
    "tcp_av": (
        {
            "mbit_before_and_after": {CELL: [6.0, 6.3], OTHER: [9.0, 6.0]},
            "mbit_by_default": {CELL: [6.0, 5.4], OTHER: [10.0, 10.0]},
            "gives_way_s": {CELL: 1.0, OTHER: None},
        },
        {
            "tcp_av_worst_of_target": 0.6, "tcp_av_cells_held": 0.5, "tcp_av_default_worst_of_target": 0.9,
            "tcp_av_default_cells_held": 0.5, "tcp_av_most_of_target": 1.05, "tcp_av_gives_way_s": 10.0,
        },
    ),
}  # fmt: skip
"""Samples of each part of the hosts, and the values that they make."""


@pytest.mark.parametrize("name", HOSTS)
def test_rows_of_the_hosts_follow_from_samples_alone(name: str) -> None:
    raw, values = HOSTS[name]
    rows = summary.rows(summary.find("hosts", name), raw)
    assert {row.name: row.value for row in rows} == values
    assert all(row.value is None or min(row.rounds) <= row.value <= max(row.rounds) for row in rows if row.rounds)
    assert f"the slowest: {OTHER}" in rows[-1].text or name != "tcp_av"


def test_samples_that_are_missing_make_rows_without_values() -> None:
    rows = summary.rows(switch.memory, {summary.NOT_MEASURED: "no root", "rows": ["memory_mb"]})
    assert rows == [Row("memory_mb", "not measured: no root", None)] and rows[0].verdict == "inconclusive"


def test_part_measured_again_replaces_its_record(tmp_path: Path) -> None:
    measured(tmp_path, RAW, commit="4d5e6f7")
    measured(tmp_path, {"memory": {"resident_bytes": {"apswitch": 40_000_000}}}, commit="1a2b3c4")
    found = summary.read(tmp_path / "switch.json")
    assert list(found) == list(RAW) and found["memory"]["rows"][0]["value"] == 40.0
    assert (found["memory"]["commit"], found["memory"]["load"][0]) == ("1a2b3c4", 0.1)
    assert found["pipeline"]["raw"] == RAW["pipeline"] and found["pipeline"]["commit"] != "1a2b3c4"


@whole_history
def test_publish_writes_summary_and_table(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert problems(results, capsys) == []
    publish.publish([], measured(tmp_path / "out", RAW), results)
    page = (results / "speed.md").read_text()
    commit = first_commit()
    assert page.startswith("# Speed\n\nText.\n\n") and page.endswith("\n\nMore.\n") and "by hand" not in page
    assert f"**Older code**: p4src, switch and its benchmark changed since {commit}." in page
    assert f"Commit {commit}, 2026-11-30, on Core, 2 cores, 1024 MiB, Linux 6.1; load 0.1 at the start" in page
    assert "| apswitch | 800 | 800 | 45 | 90 |\n" in page
    assert (
        "| `inserts_per_s` | entries inserted per second, in batches of 2000 | 500,000 | >= 200,000 | pass |\n" in page
    )
    assert "counters read, ms | 0.7 (0.6 to 0.8) | <= 1 | pass |\n" in page
    assert "switch\\_" not in page and "| 0.8 (0.8 to 0.8) | >= 0.85 | **fail** |\n" in page
    assert problems(results, capsys, strict=True) == []
    assert "15 figures of benchmarks\n  differ: 0\n  without samples: 0\n" in capsys_out(results, capsys)


def capsys_out(results: Path, capsys: pytest.CaptureFixture[str]) -> str:
    publish.check(results, strict=False)
    return capsys.readouterr().out


@whole_history
def test_check_names_the_first_difference(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish.publish([], measured(tmp_path / "out", RAW), results)
    published = (results / "bench/switch.json").read_text()
    changed(results, '"value": 37.0', '"value": 36.0')
    assert problems(results, capsys) == [
        f"error: {results}/bench/switch.json: memory: value of memory_mb is 36.0, its samples make 37.0"
    ]
    (results / "bench/switch.json").write_text(published)
    changed(results, '"apswitch": 37000000', '"apswitch": 38000000')
    found = problems(results, capsys)
    assert found[0].endswith("memory: value of memory_mb is 37.0, its samples make 38.0")
    assert "has `| `memory_mb` |" in found[1] and len(found) == 2
    (results / "bench/switch.json").write_text(published)
    changed(results, "| 0.7 (0.6 to 0.8) |", "| 0.6 (0.6 to 0.8) |", "speed.md")
    (found_on_page,) = problems(results, capsys)
    assert "| 0.6 (0.6 to 0.8) | <= 1 | pass |`, its samples make `| `read_1000_ms`" in found_on_page
    publish.renew({"switch": publish.published(SWITCH, results)}, results)
    assert problems(results, capsys) == []


@whole_history
def test_check_without_samples_or_commit_says_so(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"  without samples: 1: speed.md: {', '.join(RAW)}\n" in capsys_out(results, capsys)
    assert problems(results, capsys, strict=True) == [f"error: speed.md: {', '.join(RAW)}: without samples"]
    changed(results, "**Not audited**: its samples are not in this repository.\n\n", "", "speed.md")
    assert "has `| by hand | 1 |`, its samples make `**Not audited**" in problems(results, capsys)[0]
    publish.publish([], measured(tmp_path / "out", RAW), results)
    file = results / "bench/switch.json"
    file.write_text(file.read_text().replace(first_commit(), "0123456"))
    found = problems(results, capsys)
    assert "**Not audited**: commit 0123456 is not in the history" in found[0]
    assert [f"error: speed.md: {name}: commit not there" for name in RAW] == found[1:]


@whole_history
@pytest.mark.parametrize(
    ("provenance", "reason"),
    [
        ({"commit": "0123456"}, "commit 0123456 is not in the history of this checkout"),
        ({"commit": "none: not a git checkout"}, "commit none: not a git checkout is not in the history"),
        ({"commit": "HEAD-dirty"}, "files differed from HEAD: commit them"),
        ({"beside": True}, "it was measured next to another build"),
    ],
)
def test_publish_refuses_what_nobody_could_measure_again(
    provenance: dict[str, Any], reason: str, results: Path, tmp_path: Path
) -> None:
    before = (results / "speed.md").read_text()
    out = measured(tmp_path / "out", RAW, **provenance)
    with pytest.raises(LabError) as refused:
        publish.publish(["switch"], out, results)
    assert str(refused.value).startswith(f"{out}/switch.json: switching: {reason}") and "\n" not in str(refused.value)
    assert (results / "speed.md").read_text() == before and not (results / "bench").exists()


@whole_history
def test_publish_refuses_a_part_of_a_table(results: Path, tmp_path: Path) -> None:
    out = measured(tmp_path / "out", {"memory": RAW["memory"]})
    with pytest.raises(LabError, match=r"switch.json: no switching, pipeline, .*: run `make bench`$"):
        publish.publish([], out, results)
    publish.publish([], measured(tmp_path / "all", RAW), results)
    publish.publish([], out, results)
    with pytest.raises(LabError, match=r"has no summary: run `make bench`$"):
        publish.publish([], tmp_path / "none", results)


@whole_history
def test_publish_refuses_samples_that_are_missing_or_older(results: Path, tmp_path: Path) -> None:
    publish.publish([], measured(tmp_path / "new", RAW), results)
    older = measured(tmp_path / "older", RAW, started="2026-11-29T10:00:00+00:00")
    with pytest.raises(LabError, match=r"switch.json: \w+ is older than what is published"):
        publish.publish([], older, results)
    none = measured(tmp_path / "none", RAW | {"memory": {summary.NOT_MEASURED: "no root", "rows": ["memory_mb"]}})
    with pytest.raises(LabError, match=r"switch.json: memory was not measured: no root$"):
        publish.publish([], none, results)
    assert publish.check(results, False) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"memory": {"commit"', "is damaged: Invalid JSON: EOF"),
        ("\xff", "is damaged: Invalid JSON: "),
        ("[]", "is damaged: Input should be an object"),
        ('{"memory": 3}', "is damaged: memory: Input should be an object"),
        ('{"memory": {"commit": "1a2b3c4"}}', "is damaged: memory.started: Field required"),
        (json.dumps({"memory": RECORD | {"machine": {}}}), "is damaged: memory.machine.system: Field required"),
        (json.dumps({"memory": RECORD | {"load": [0.1]}}), "is damaged: memory.load: List should have at least 2"),
        (json.dumps({"memory": RECORD | {"rows": [3]}}), "is damaged: memory.rows.0: Input should be an object"),
        (json.dumps({"memory": RECORD | {"more": 1}}), "is damaged: memory.more: Extra inputs are not permitted"),
    ],
)
def test_damaged_summary_is_one_line_with_its_name(text: str, reason: str, results: Path) -> None:
    file = results / "bench/switch.json"
    file.parent.mkdir()
    file.write_text(text)
    for use in (lambda: publish.check(results, False), lambda: publish.publish([], file.parent, results)):
        with pytest.raises(LabError) as refused:
            use()
        assert str(refused.value).startswith(f"{file} {reason}") and "\n" not in str(refused.value)
    with pytest.raises(LabError, match="is damaged"):
        summary.begin(file)


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("memory", {"resident_bytes": {}}, "memory: its samples make no rows: TypeError"),
        ("p4runtime", {}, "p4runtime: its samples make no rows: KeyError: 'apswitch'"),
        ("gone", {}, "this checkout has no benchmark accesspoint.checks.bench.switch.gone"),
        ("lab", {}, "lab: its samples make no rows: AttributeError"),
    ],
)
def test_damaged_samples_are_one_line_with_their_name(
    name: str, raw: dict[str, Any], reason: str, results: Path
) -> None:
    file = results / "bench/switch.json"
    file.parent.mkdir()
    file.write_text(json.dumps({name: RECORD | {"raw": raw}}))
    with pytest.raises(LabError, match=reason):
        publish.check(results, False)


def test_help_teaches(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["publish", "--help"])
    with pytest.raises(SystemExit):
        publish.main()
    assert "    make bench\n    .venv/bin/python -m accesspoint.checks.bench.publish\n" in capsys.readouterr().out
