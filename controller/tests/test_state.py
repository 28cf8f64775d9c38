# SPDX-License-Identifier: Apache-2.0
"""Persistence in SQLite and PostgreSQL: desired state, tokens, history, backup; and databases that fail."""

import asyncio
import gzip
import json
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import SQLAlchemyError

from accesspoint.checks.harness.switches import ROOT, SwitchLab, wait_for
from accesspoint.checks.harness.waiting import eventually, until
from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.api import service
from accesspoint.controller.config import AccessPointConfig, ConfigError, Ncr
from accesspoint.controller.observation import NOTHING_USED, Observation, PortObservation, UsageObservation
from accesspoint.controller.samples import MEANS, RETENTION, STATION_SUMS, SUMS, Bucket, Key, Recorder
from accesspoint.controller.state import backup as backups
from accesspoint.controller.state import history
from accesspoint.controller.state import store as store_module
from accesspoint.controller.state.database import (
    HEAD,
    HISTORY,
    METADATA,
    MIGRATIONS,
    STATION_USE,
    VERSION,
    connect,
    current,
    hold,
    migrate,
    open_engine,
)
from accesspoint.controller.state.history import Archive, resolution_for
from accesspoint.controller.state.store import Change, Conflict, Store, document

from .test_config import access_point
from .test_entries import PIPELINE

CHANGE = Change("admin (1)", "127.0.0.1", "POST", "/", 201, {"a": 1})
NOW = 1_790_000_400
"""A whole number of every resolution."""


def config(name: str = "ap1", **fields: Any) -> AccessPointConfig:
    return AccessPointConfig.model_validate(access_point(pipeline=PIPELINE, **fields) | {"name": name})


def seen(when: float, total: int, delay_ms: float = 10.0, sessions: int = 1, name: str = "ap1") -> Observation:
    """Return an access point with one port, that has sent `total` packets of 1000 bytes of the download."""
    entry: Any = dict.fromkeys(
        ("arriving_bps", "desired_bps", "arrived_bytes", "arrived_packets", "filtered_packets", "refused_packets"), 0
    ) | {"dropped_packets": 0, "marked_packets": total // 10, "feedback": 0.5, "class_id": 1}
    entry |= {"sent_packets": total, "sent_bytes": total * 1000}
    port: Any = dict.fromkeys(("queue_packets", "queue_bytes", "target_ms", "flows_active", "largest_flow"), 0)
    port |= {"port": 2, "role": "uplink", "link": "active", "delay_ms": delay_ms, "device": 0.25, "classes": [entry]}
    ports: list[PortObservation] = [port]
    whole: Any = {"name": name, "time": when, "sessions": sessions, "ports": ports}
    found: Observation = whole
    return found


def migrations() -> Config:
    """Return alembic's settings."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    return made


def migrated(engine: sa.Engine, to: str) -> None:
    """Apply the migrations to an empty database, up to one of them."""
    alembic = migrations()
    with engine.begin() as connection:
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, to)


def options(engine: sa.Engine) -> dict[str, dict[str, bool]]:
    """Return what SQLite's tables have that alembic does not compare."""
    with engine.connect() as connection:
        tables = connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'table'")).all()
    words = ("WITHOUT ROWID", "AUTOINCREMENT")
    return {name: {word: word in sql.upper() for word in words} for name, sql in tables}


def test_migrations_make_the_tables_of_a_new_database(engine: sa.Engine, tmp_path: Path) -> None:
    assert ScriptDirectory.from_config(migrations()).get_current_head() == HEAD
    if engine.dialect.name == "sqlite":
        old = open_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
        new = engine
    else:
        METADATA.drop_all(engine)
        VERSION.drop(engine)
        old, new = engine, None
    migrated(old, HEAD)
    migrate(old)
    with old.connect() as connection:
        compared = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(compared, METADATA) == []
    for table in METADATA.sorted_tables:
        keys = sa.inspect(old).get_pk_constraint(table.name)["constrained_columns"]
        assert keys == [column.name for column in table.primary_key]
    assert current(old) == HEAD
    if new is not None:
        for table in METADATA.sorted_tables:
            defaults = {column["name"]: column["default"] for column in sa.inspect(new).get_columns(table.name)}
            assert all(defaults[name] for name in (*MEANS, *SUMS, *STATION_SUMS) if name in defaults), table.name
        assert current(new) == HEAD and options(new) == options(old)


def test_processes_that_begin_at_once_share_a_new_database(engine: sa.Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    for _ in range(5):
        METADATA.drop_all(engine)
        VERSION.drop(engine)
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(connect, [url] * 4))
        assert {current(one) for one in made} == {HEAD}
        for one in made:
            one.dispose()


def test_of_file_and_database_the_later_change_counts(engine: sa.Engine) -> None:
    store = Store(engine)
    assert [entry["name"] for entry in store.adopt([config(), config("ap2"), config("ap3")])] == ["ap1", "ap2", "ap3"]
    revisions = store.revisions()
    store.put(config(class_weights={"downlink": 9}), revisions["ap1"], CHANGE)
    store.remove("ap2", revisions["ap2"], CHANGE)
    store.put(config("by-rest"), None, CHANGE)
    again = {
        entry["name"]: entry for entry in store.adopt([config(), config("ap2"), config("ap3", flow_idle_timeout=9)])
    }
    assert again.keys() == {"ap1", "ap3", "by-rest"}
    assert again["ap1"]["class_weights"] == {"downlink": 9}
    assert again["ap3"]["flow_idle_timeout"] == 9
    last = {
        entry["name"]: entry for entry in store.adopt([config(station_idle_timeout=99), config("ap2", device_id=2)])
    }
    assert last.keys() == {"ap1", "ap2", "by-rest"}
    assert "class_weights" not in last["ap1"]
    assert [entry["name"] for entry in store.adopt(None)] == ["ap1", "ap2", "by-rest"], "there is no file"


def test_a_change_names_what_it_is_based_on(engine: sa.Engine) -> None:
    store = Store(engine)
    first = store.put(config(), None, CHANGE)
    with pytest.raises(Conflict):
        store.put(config(), None, CHANGE)
    second = store.put(config(class_weights={"downlink": 2}), first, CHANGE)
    for based_on in (first, second + 1):
        with pytest.raises(Conflict):
            store.put(config(class_weights={"downlink": 3}), based_on, CHANGE)
        with pytest.raises(Conflict):
            store.remove("ap1", based_on, CHANGE)
    assert store.access_point("ap1") == (
        json.loads(json.dumps(document(config(class_weights={"downlink": 2})))),
        second,
    )
    store.remove("ap1", second, CHANGE)
    # Who knows it from before does not take the new one for it.
    assert store.put(config(), None, CHANGE) > second
    first = store.put_ncr_defaults(Ncr(alpha=0.1), None, CHANGE)
    for based_on_default in (None, first + 1):
        with pytest.raises(Conflict):
            store.put_ncr_defaults(Ncr(alpha=0.2), based_on_default, CHANGE)
    assert store.audited(10, 0, None, 0, 1e11)[1] == 5, "what was refused leaves no line"


def test_the_last_revisions_are_kept(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_REVISIONS", 5)
    store, revision = Store(engine), None
    for number in range(8):
        revision = store.put(config(class_weights={"downlink": 1 + number}), revision, CHANGE)
    store.put(config("ap2"), None, CHANGE)
    kept, total = store.revisions_of("ap1", 3, 1)
    assert (total, [entry.config["class_weights"]["downlink"] for entry in kept]) == (5, [7, 6, 5])
    assert store.revision("ap1", kept[0].number) == kept[0]
    assert store.revision("ap2", kept[0].number) is None
    assert store.revisions_of("ap2", 10, 0)[1] == 1


def test_a_database_of_the_first_release_is_brought_up_to_date(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    engine = open_engine(url)
    migrated(engine, "0001")
    with engine.begin() as connection:
        row = {"name": "ap1", "config": json.dumps(document(config())), "removed": False, "changed": NOW}
        names = ", ".join(row)
        connection.execute(
            sa.text(f"INSERT INTO access_points ({names}) VALUES ({', '.join(f':{name}' for name in row)})"), row
        )
        connection.execute(sa.text("INSERT INTO settings VALUES ('ncr', '{\"alpha\": 0.5}')"))
    store = Store(connect(url))
    [only], total = store.revisions_of("ap1", 10, 0)
    assert (total, only.time, only.number) == (1, NOW, store.revisions()["ap1"])
    assert store.put(config(), only.number, CHANGE) > only.number
    ncr, revision = store.ncr_defaults()
    assert ncr.alpha == 0.5
    assert store.put_ncr_defaults(Ncr(), revision, CHANGE)


def test_defaults_tokens_and_audit_are_kept(engine: sa.Engine) -> None:
    store = Store(engine)
    store.put_ncr_defaults(Ncr(alpha=0.5), None, CHANGE)
    assert store.ncr_defaults()[0].model_dump(exclude_unset=True) == {"alpha": 0.5}
    token, secret = store.new_token("grafana", "viewer", expires=NOW, change=CHANGE)
    session, _ = store.new_token("grafana", "viewer", kind="session", parent=token.id)
    store.revoke(token.id)
    kept = {entry.id: entry for entry in store.tokens().values()}
    assert kept[token.id].revoked and kept[session.id].revoked
    assert secret not in store.tokens()
    lines, total = store.audited(10, 0, None, 0, 1e11)
    assert (total, lines[0]["change"], lines[0]["actor"]) == (2, {"a": 1}, "admin (1)")
    assert store.reserve("1", "k", "print") is None
    assert store.reserve("1", "k", "other") == ("print", None), "it is on its way"
    store.remember("1", "k", {"status": 201})
    assert store.reserve("1", "k", "print") == ("print", {"status": 201})
    assert store.reserve("2", "k", "print") is None
    store.remember("2", "k", None)
    assert store.reserve("2", "k", "print") is None, "what has failed may be tried again"


def test_history_has_means_rates_and_counts_at_every_resolution(engine: sa.Engine) -> None:
    recorder, archive = Recorder(), Archive(engine)
    for second in range(121):
        recorder.add(seen(NOW + second, 100 * second, delay_ms=second % 10))
    archive.write(recorder.take(everything=True))
    ten = archive.query("ap1", 2, NOW, NOW + 120, 10)[2]
    assert ten["time"] == [NOW + 10 * number for number in range(12)]
    assert set(ten["delay_ms"]) == {4.5}
    assert set(ten["delay_max_ms"]) == {9}
    assert set(ten["sent_downlink_bps"]) == {800_000}
    assert ten["marked_packets"][1:] == [100] * 11
    assert set(ten["feedback_device"]) == {0.25}
    one = archive.query("ap1", None, NOW + 60, NOW + 70, 1)[2]
    assert (len(one["time"]), one["delay_ms"][3]) == (10, 3)
    assert archive.query("ap1", 2, NOW, NOW + 120, 60)[2]["samples"] == [60, 60]
    assert archive.query("ap1", 7, NOW, NOW + 120, 60) == {}


def test_a_bucket_that_a_restart_cuts_in_two_is_one(engine: sa.Engine) -> None:
    archive = Archive(engine)
    for start, count, delay in ((NOW, 20, 10.0), (NOW + 20, 40, 40.0)):
        recorder = Recorder()
        for second in range(count):
            recorder.add(seen(start + second, 100 * second, delay))
        archive.write(recorder.take(everything=True))
    found = archive.query("ap1", 2, NOW, NOW + 60, 60)[2]
    assert found["samples"] == [60]
    assert found["delay_ms"] == [30]
    assert found["delay_max_ms"] == [40]
    assert found["sent_downlink_bps"] == [800_000]


def test_counters_that_begin_anew_are_no_negative_rate() -> None:
    recorder = Recorder()
    for second, (total, sessions) in enumerate([(500, 1), (600, 1), (50, 2), (150, 2)]):
        recorder.add(seen(NOW + second, total, sessions=sessions))
    sent = [bucket.values()["sent_downlink_bytes"] for key, bucket in recorder.take(True).items() if key[0] == 1]
    assert sorted(sent) == [0, 50_000, 100_000, 100_000]


def test_what_is_old_goes_and_a_removed_access_point_too(engine: sa.Engine) -> None:
    recorder, archive = Recorder(), Archive(engine)
    for name in ("ap1", "ap2"):
        for second in range(30):
            recorder.add(seen(NOW + second, second, name=name))
    archive.write(recorder.take(everything=True))
    archive.expire(NOW + RETENTION[1] + 20)
    assert archive.query("ap1", 2, NOW, NOW + 60, 1)[2]["time"][0] == NOW + 20
    assert len(archive.query("ap1", 2, NOW, NOW + 60, 10)[2]["time"]) == 3
    archive.forget("ap2")
    with engine.begin() as connection:
        history.delete_series(connection, "ap2")
    assert archive.query("ap2", None, 0, NOW * 2, 10) == {}
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(HISTORY)) == 10 + 3 + 1 + 1


STATION, OTHER = "02:00:00:00:00:0b", "ff:ff:ff:ff:ff:fe"


def usage(down: int, up: int) -> UsageObservation:
    return {**NOTHING_USED, "packets_up": 1, "bytes_up": up, "packets_down": 1, "bytes_down": down}


def test_what_stations_use_is_kept(engine: sa.Engine) -> None:
    archive = Archive(engine)
    start = NOW - NOW % 600
    total = 5000
    # Two processes, one after the other: each begins with what was used before, and adds nothing of that.
    for session, begin in ((1, start), (2, start + 300)):
        recorder = Recorder()
        for look in range(31):
            total += 100
            used = {STATION: usage(total, 7 * look)} | ({OTHER: usage(40, 2)} if look > 3 else {})
            recorder.use("ap1", session, begin + 10 * look, used)
            archive.write(recorder.take())
    minutes = archive.used("ap1", STATION, start, start + 1200, 60)
    assert minutes["time"] == [start + 60 * number for number in range(11)]
    # The first look of each process tells what was before.
    assert minutes["bytes_down"] == [500, 600, 600, 600, 600, 600, 600, 600, 600, 600, 100]
    assert sum(minutes["bytes_up"]) == 2 * 30 * 7
    whole = archive.used("ap1", STATION, start, start + 1200, 600)
    assert (whole["time"], whole["bytes_down"]) == ([start, start + 600], [5900, 100])
    assert archive.used("ap1", OTHER, start, start + 600, 600) == {
        "time": [start], "bytes_down": [80], "bytes_up": [4]
    }  # fmt: skip
    for name, address in (("ap2", STATION), ("ap1", "02:00:00:00:00:0c")):
        assert archive.used(name, address, start, start + 600, 600)["time"] == []
    # As old as that it goes, and with its access point.
    recorder.add(seen(start, 0))
    archive.write(recorder.take(everything=True))
    archive.expire(start + RETENTION[60] + 70)
    assert archive.used("ap1", STATION, start, start + 1200, 60)["time"][0] == start + 120
    assert archive.used("ap1", STATION, start, start + 1200, 600) == whole
    with engine.begin() as connection:
        history.delete_series(connection, "ap1")
        assert connection.scalar(sa.select(sa.func.count()).select_from(STATION_USE)) == 0


def test_what_a_station_used_never_falls_and_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.samples.MAX_STATIONS", 2)
    recorder = Recorder()
    recorder.use("ap1", 1, NOW, {STATION: usage(1000, 0)})
    many = {f"02:00:00:00:01:{number:02x}": usage(number, 0) for number in range(10)}
    # Another flow table: it is counted from nothing again. Of many those that used most are kept.
    recorder.use("ap1", 1, NOW + 10, {STATION: usage(30, 0), **many})
    kept = {key[2]: bucket.sums for key, bucket in recorder.take().items() if key[0] == 60}
    assert kept == {STATION: [30, 0], "02:00:00:00:01:09": [9, 0]}
    # A session that began anew tells what was before, again.
    recorder.use("ap1", 2, NOW + 20, {STATION: usage(5000, 0)})
    recorder.use("ap1", 2, NOW + 30, {STATION: usage(5000, 0)})
    assert recorder.take() == {}
    recorder.drop("ap1")
    recorder.use("ap1", 2, NOW + 40, {STATION: usage(6000, 0)})
    assert recorder.take() == {}


def test_the_resolution_fits_a_screen_and_what_is_kept() -> None:
    assert resolution_for(NOW - 600, NOW, NOW) == 1
    assert resolution_for(NOW - 3600, NOW, NOW) == 10
    assert resolution_for(NOW - 86_400, NOW, NOW) == 600
    assert resolution_for(NOW - 40_000, NOW, NOW) == 60
    assert resolution_for(NOW - 3 * 86_400 - 300, NOW - 3 * 86_400, NOW) == 60


def test_samples_that_cannot_be_written_wait_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.samples.MAX_PENDING", 100)
    recorder = Recorder()
    many: dict[Key, Bucket] = {(1, "ap1", 2, NOW + number): Bucket(1) for number in range(105)}
    recorder.put_back(many)
    assert recorder.lost == 5
    assert min(key[3] for key in recorder.take()) == NOW + 5


def test_a_backup_goes_into_either_database(engine: sa.Engine, tmp_path: Path) -> None:
    store, archive, recorder = Store(engine), Archive(engine), Recorder()
    store.adopt([config(), config("ap2")])
    store.new_token("admin", "admin", change=CHANGE)
    for second in range(30):
        recorder.add(seen(NOW + second, second))
    archive.write(recorder.take(everything=True))
    file = tmp_path / "backup.gz"
    rows = backups.backup(engine, file)
    assert file.stat().st_mode & 0o777 == 0o600
    other = connect(f"sqlite:///{tmp_path / 'other.db'}")
    assert backups.restore(other, file, replace=False) == rows
    for table in METADATA.sorted_tables:
        with engine.connect() as old, other.connect() as new:
            assert sorted(map(repr, old.execute(sa.select(table)))) == sorted(map(repr, new.execute(sa.select(table))))
    with pytest.raises(backups.BackupError, match="not empty"):
        backups.restore(engine, file, replace=False)
    assert backups.restore(engine, file, replace=True) == rows
    Store(engine).new_token("later", "viewer", change=CHANGE)
    assert Store(engine).audited(10, 0, None, 0, 1e11)[1] == 2


def test_a_backup_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path / 'state.db'}")
    Store(engine).adopt([config()])
    file = tmp_path / "backup.gz"
    backups.backup(engine, file)
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    wrong: dict[str, tuple[bytes, str]] = {
        "cut": (gzip.compress(b"".join(lines[:-1])), "not complete"),
        "broken": (file.read_bytes()[:-20], "ended before"),
        "other": (gzip.compress(b"[1]\n"), "not a backup"),
        "text": (b"no gzip", "not a gzipped"),
        "later": (gzip.compress(json.dumps({"format": backups.FORMAT, "migration": "9"}).encode()), "migration 9"),
    }
    for name, (content, words) in wrong.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(backups.BackupError, match=words) as caught:
            backups.restore(engine, path, replace=True)
        assert "\n" not in str(caught.value)
        assert [entry["name"] for entry in Store(engine).access_points()] == ["ap1"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://here", "neither sqlite:///FILE nor postgresql://USER@HOST/NAME"),
        ("nonsense", "neither sqlite:///FILE"),
        ("sqlite:////no/such/folder/state.db", "unable to open database file"),
        ("postgresql://me:secret@127.0.0.1:1/none", "postgresql\\+psycopg://me:\\*\\*\\*@127.0.0.1:1/none|refused"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        connect(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_database_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    engine = connect(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigError, match="migration 9999"):
        connect(url)


def test_database_of_a_running_controller_is_refused_to_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    hold(url)
    connect(url)
    with pytest.raises(ConfigError, match="another controller uses it"):
        hold(url)
    with pytest.raises(ConfigError, match="replicas of a fleet share it: give --engine"):
        hold("postgresql://me:secret@db/name")
    with pytest.raises(ConfigError, match="no such file or directory"):
        hold(f"sqlite:///{tmp_path}/none/state.db")


def write_for_ever(url: str) -> None:
    """The part of a process that is going to be killed."""
    store, archive, number = Store(connect(url)), Archive(open_engine(url)), 0
    revision = store.revisions().get("ap1")
    while True:
        number += 1
        recorder = Recorder()
        for second in range(20):
            recorder.add(seen(NOW + 20 * number + second, second))
        archive.write(recorder.take(everything=True))
        weights = {"downlink": 1 + number % 999}
        revision = store.put(config(class_weights=weights), revision, Change("w", "", "PUT", "/", 200, number))


async def test_two_replicas_on_one_database_follow_each_other(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FOLLOW_SECONDS", 0.01)
    backends = [LocalBackend(lambda name: None) for _ in range(2)]
    first, second = (service.Service(engine, backend) for backend in backends)
    for each in (first, second):
        await each.load([config()])
        each.start()
    following = asyncio.create_task(second.follow())

    async def followed(true: Callable[[], bool]) -> None:
        await until(lambda: following.done() or true())
        assert not following.done()

    async def change(one: service.Service, **fields: Any) -> None:
        await one.change("ap1", CHANGE, lambda: one.wanted["ap1"] | fields)

    await change(first, class_weights={"downlink": 9})
    await first.add(config("ap2", enabled=False), CHANGE)
    await first.change_defaults(CHANGE, lambda: Ncr(alpha=0.5))
    await followed(lambda: second.names == ["ap1", "ap2"] and second.config("ap2").ncr.alpha == 0.5)
    await followed(lambda: second.config("ap1").class_weights.downlink == 9)
    await until(lambda: backends[1].access_points["ap1"].config.class_weights.downlink == 9)
    # A change takes the other's with it, also before it is followed.
    await change(second, station_idle_timeout=99)
    await change(first, flow_idle_timeout=9)
    await followed(lambda: second.config("ap1").flow_idle_timeout == 9)
    assert first.config("ap1") == second.config("ap1")
    assert first.config("ap1").station_idle_timeout == 99
    await first.remove("ap2", CHANGE, lambda: None)
    await followed(lambda: second.names == ["ap1"] and "ap2" not in backends[1].access_points)
    following.cancel()
    for each in (first, second):
        await each.backend.stop()
        await each.close()


def test_a_process_that_is_killed_leaves_a_whole_database(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    url, survived = f"sqlite:///{file}", 0
    context = multiprocessing.get_context("fork")
    for round_ in range(10):
        process = context.Process(target=write_for_ever, args=(url,), daemon=True)
        process.start()
        assert eventually(file.exists)
        time.sleep(0.1 + round_ * 0.05)
        process.kill()
        process.join()
        with sqlite3.connect(file) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.close()
        # What was confirmed is there: the state, and its line of the audit log, or neither.
        lines, _ = Store(connect(url)).audited(1, 0, None, 0, 1e11)
        entries = Store(connect(url)).access_points()
        if lines:
            assert entries[0]["class_weights"] == {"downlink": 1 + lines[0]["change"] % 999}
        survived += 1
    print(f"survived {survived} kills")
    assert survived >= 5


def test_a_locked_database_refuses_changes_and_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.state.database.BUSY_SECONDS", 0.2)
    file = tmp_path / "state.db"
    store = Store(connect(f"sqlite:///{file}"))
    store.put(config(), None, CHANGE)
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SQLAlchemyError, match="locked"):
            store.put(config("ap2"), None, CHANGE)
        assert [entry["name"] for entry in store.access_points()] == ["ap1"]
        other.execute("ROLLBACK")
    other.close()
    store.put(config("ap2"), None, CHANGE)
    assert len(store.access_points()) == 2


def test_a_full_database_refuses_changes_and_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    engine = connect(f"sqlite:///{file}")
    store = Store(engine)
    store.put(config(), None, CHANGE)

    @sa.event.listens_for(engine, "connect")
    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 44")

    engine.dispose()
    with pytest.raises(SQLAlchemyError, match="full"):
        for number in range(1000):
            store.put(config(f"more{number}"), None, CHANGE)
    kept = len(store.access_points())
    engine.dispose()
    reopened = connect(f"sqlite:///{file}")
    with reopened.connect() as connection:
        assert connection.scalar(sa.text("PRAGMA integrity_check")) == "ok"
    assert len(Store(reopened).access_points()) == kept


def test_a_controller_goes_on_where_it_stopped(link_lab: SwitchLab) -> None:
    link_lab.start_switch()
    first = link_lab.controller()
    assert first.send("PATCH", "class-weights", {"downlink": 7}).status_code == 200
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    # The same file and the same database.
    path = first.errors.with_suffix(".json")
    command = [sys.executable, "-m", "accesspoint.controller", "--config", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as again:
        try:
            assert again.stdout
            line = again.stdout.readline()
            assert line.startswith("rest "), "a database that is not new gets no second token"
            first.url = line.split()[1]
            assert first.get("class-weights")["downlink"] == 7
            wait_for(lambda: first.get()["state"] == "ready")
        finally:
            again.terminate()
            again.wait(120)
