# SPDX-License-Identifier: Apache-2.0
"""The database: its tables, how it is opened, and its migrations (alembic, `migrations/`).

SQLite runs with a write-ahead log, so that reading never waits for writing, and syncs every commit: what was confirmed
survives a power cut. PostgreSQL, which replicas of a fleet share, needs a URL, as `postgresql://user@host/name`.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from ..config import ConfigError
from ..samples import MEANS, STATION_SUMS, SUMS

HEAD = "0005"
"""The newest migration."""
MIGRATIONS = Path(__file__).parent / "migrations"
CHANGE_LOCK = 4_250_711
"""Key of PostgreSQL's advisory lock for changes of tables."""
BUSY_SECONDS = 5
"""Seconds for which a write waits for another process's, before it fails."""

METADATA = sa.MetaData()
"""Tables of the newest migration."""
VERSION = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
"""Newest migration of a database, where alembic keeps it."""

NAME, SHORT = sa.String(64), sa.String(16)


def _given(**kinds: Any) -> list[sa.Column[Any]]:
    """Make columns that have a value in every row."""
    return [sa.Column(name, kind, nullable=False) for name, kind in kinds.items()]


def _measured(names: Iterable[str]) -> list[sa.Column[Any]]:
    """Make columns of measures, 0 in rows of a release that does not know them."""
    return [sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in names]


def _revision() -> sa.Column[Any]:
    return sa.Column("revision", sa.Integer, nullable=False, server_default="0")


def _numbered() -> sa.Column[Any]:
    return sa.Column("id", sa.Integer, primary_key=True, autoincrement=True)


ACCESS_POINTS = sa.Table(
    "access_points",
    METADATA,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("file_hash", NAME),
    sa.Column("in_effect", sa.Integer),
    *_given(config=sa.Text, removed=sa.Boolean, changed=sa.Float),
    _revision(),
)
SETTINGS = sa.Table(
    "settings", METADATA, sa.Column("name", NAME, primary_key=True), *_given(value=sa.Text), _revision()
)
REVISIONS = sa.Table(
    "revisions",
    METADATA,
    _numbered(),
    sa.Column("access_point", NAME, index=True),
    sa.Column("config", sa.Text),
    *_given(time=sa.Float, actor=sa.String(128)),
    # No number is used twice, also after the newest row was deleted.
    sqlite_autoincrement=True,
)
"""Every desired state, numbered through all access points, so that an access point that is removed and added again gets
new numbers. A row without `access_point` is of the defaults, one without `config` a removal."""
TOKENS = sa.Table(
    "tokens",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    *_given(name=NAME, role=SHORT, kind=SHORT),
    sa.Column("hash", NAME, nullable=False, unique=True),
    *_given(created=sa.Float),
    sa.Column("expires", sa.Float),
    sa.Column("revoked", sa.Float),
    sa.Column("parent", sa.String(32)),
)
AUDIT = sa.Table(
    "audit",
    METADATA,
    _numbered(),
    *_given(time=sa.Float, actor=sa.String(128), client=NAME, action=SHORT, path=sa.Text),
    *_given(status=sa.Integer, change=sa.Text),
)
IDEMPOTENCY = sa.Table(
    "idempotency",
    METADATA,
    sa.Column("actor", sa.String(32), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    *_given(fingerprint=NAME, created=sa.Float, answer=sa.Text),
)
AGENTS = sa.Table(
    "agents",
    METADATA,
    sa.Column("id", NAME, primary_key=True),
    *_given(access_point=NAME, adopted=sa.Float, actor=sa.String(128)),
)
"""Agents on machines of their own that were adopted, by their public keys."""
SERIES = sa.Table(
    "series",
    METADATA,
    _numbered(),
    *_given(access_point=NAME, port=sa.Integer),
    sa.UniqueConstraint("access_point", "port"),
)

HISTORY = sa.Table(
    "history",
    METADATA,
    sa.Column("resolution", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("samples", sa.Integer, nullable=False),
    sa.Column("delay_max_us", sa.BigInteger, nullable=False),
    *_measured((*MEANS, *SUMS)),
    # One series' samples lie side by side, in the order of time: a chart reads few pages.
    sqlite_with_rowid=False,
)
STATION_USE = sa.Table(
    "station_use",
    METADATA,
    sa.Column("access_point", NAME, primary_key=True),
    sa.Column("resolution", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Integer, primary_key=True, autoincrement=False),
    # A MAC address as a number.
    sa.Column("station", sa.BigInteger, primary_key=True, autoincrement=False),
    *_measured(STATION_SUMS),
    sqlite_with_rowid=False,
)
"""Usage of stations; stations without usage have no rows."""


def explain(error: SQLAlchemyError) -> str:
    """Explain a failure of the database in one line."""
    reason = str(error.orig if isinstance(error, DBAPIError) and error.orig else error)
    return "database: " + (reason.strip().splitlines() or ["it does not answer"])[0]


def connect(url: str) -> sa.Engine:
    """Return the engine of a database, with all migrations applied; raises `ConfigError`."""
    engine = open_engine(url)
    try:
        migrate(engine)
    except SQLAlchemyError as error:
        raise ConfigError(f"--database {shown(url)}: {explain(error).removeprefix('database: ')}") from None
    return engine


def hold(url: str) -> None:
    """Hold a database for this process, until it ends; raises `ConfigError` for one that others use or share."""
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        return
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        raise ConfigError(
            f"--database {shown(url)}: replicas of a fleet share it: give --engine, too, or else sqlite:///FILE; "
            f"`accesspoint.controller.state backup` and `restore` move what it holds"
        )
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return
    try:
        # Stays open: closing it would also release the locks that SQLite has on the file.
        descriptor = os.open(str(parsed.database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"--database {shown(url)}: another controller uses it: stop that one, or make both agents of a fleet"
        ) from None
    except OSError as error:
        raise ConfigError(f"--database {shown(url)}: {(error.strerror or str(error)).lower()}") from None


def open_engine(url: str) -> sa.Engine:
    """Return the engine for a URL; raises `ConfigError`."""
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigError(f"--database {shown(url)}: neither sqlite:///FILE nor postgresql://USER@HOST/NAME")
        sqlite = parsed.get_backend_name() == "sqlite"
        arguments: dict[str, Any] = {"timeout": BUSY_SECONDS} if sqlite else {"connect_timeout": BUSY_SECONDS}
        engine = sa.create_engine(parsed, connect_args=arguments, pool_pre_ping=not sqlite)
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError("--database: neither sqlite:///FILE nor postgresql://USER@HOST/NAME") from None
    if sqlite:
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    return engine


def writing(engine: sa.Engine) -> sa.Engine:
    """Return the engine for transactions that write: SQLite then takes its lock first, and waits for it."""
    return engine.execution_options(writing=True)


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    # Python's own handling of transactions leaves out changes of tables.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def shown(url: str) -> str:
    """Return the URL without its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "URL"


def migrate(engine: sa.Engine) -> None:
    """Apply missing migrations, and add a column of history for each new measure; raises `ConfigError` for a database
    of a later release."""
    _apply(engine)
    for table, wanted in ((HISTORY, (*MEANS, *SUMS)), (STATION_USE, STATION_SUMS)):
        if _missing(engine, table, wanted):
            with _changing(engine) as connection:
                for name in _missing(connection, table, wanted):
                    # The names are those of `MEASURES`. A release that does not know the column leaves its default.
                    added = f"ALTER TABLE {table.name} ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0"
                    connection.execute(sa.text(added))


def _missing(bind: sa.Engine | sa.Connection, table: sa.Table, wanted: Iterable[str]) -> list[str]:
    there = {column["name"] for column in sa.inspect(bind).get_columns(table.name)}
    return [name for name in wanted if name not in there]


@contextlib.contextmanager
def _changing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction that changes tables, one at a time: replicas may start at once."""
    with writing(engine).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({CHANGE_LOCK})"))
        yield connection


def _apply(engine: sa.Engine) -> None:
    if current(engine) == HEAD:
        return
    with _changing(engine) as connection:
        version = _version(connection)
        if version is None:
            VERSION.create(connection, checkfirst=True)
            connection.execute(VERSION.insert().values(version_num=HEAD))
            METADATA.create_all(connection, checkfirst=False)
        elif version != HEAD:
            _upgrade(connection, version)


def _upgrade(connection: sa.Connection, version: str) -> None:
    # Only now: importing alembic takes longer than all else at a start.
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        raise ConfigError(
            f"the database has migration {version}, which this release does not know: use the release that wrote it"
        ) from None


def current(engine: sa.Engine) -> str | None:
    """Return the newest migration that was applied; None for an empty database."""
    with engine.connect() as connection:
        return _version(connection)


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION.name):
        return None
    version: str | None = connection.scalar(sa.select(VERSION.c.version_num))
    return version
