# SPDX-License-Identifier: Apache-2.0
"""Backup and restore: every table as lines of JSON, compressed; the same file for SQLite and PostgreSQL.

The first line names format and migration, then come {"table": NAME} and the rows as lists, and last the number of
rows, so that a truncated file is detected.
"""

import gzip
import json
import os
from pathlib import Path

import sqlalchemy as sa

from .database import AUDIT, HEAD, METADATA, REVISIONS, SERIES, writing

FORMAT = "access-point-controller"
ROWS = 5000


class BackupError(Exception):
    """A file or database that cannot be used; the text is one line."""


def backup(engine: sa.Engine, path: Path) -> int:
    """Write everything into a new file that only its owner can read; returns the number of rows."""
    rows = 0
    part = path.with_name(path.name + ".part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with (
            os.fdopen(descriptor, "wb") as raw,
            gzip.open(raw, "wt", encoding="utf-8") as out,
            _snapshot(engine).connect() as connection,
        ):
            out.write(json.dumps({"format": FORMAT, "migration": HEAD}) + "\n")
            for table in METADATA.sorted_tables:
                out.write(json.dumps({"table": table.name, "columns": table.columns.keys()}) + "\n")
                for row in connection.execution_options(yield_per=ROWS).execute(sa.select(table)):
                    out.write(json.dumps(list(row)) + "\n")
                    rows += 1
            out.write(json.dumps({"rows": rows}) + "\n")
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BackupError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return rows


def _snapshot(engine: sa.Engine) -> sa.Engine:
    """Return the engine for transactions that see all tables as of one moment, as every one of SQLite does."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")
    return engine


def restore(engine: sa.Engine, path: Path, replace: bool) -> int:
    """Restore a backup into a database, completely or not at all; returns the number of rows.

    A database that holds access points, tokens or history already is only overwritten with `replace`.
    """
    tables = {table.name: table for table in METADATA.sorted_tables}
    rows, told, table, columns = 0, None, None, []
    waiting: list[dict[str, object]] = []
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines, writing(engine).begin() as connection:
            header = json.loads(next(lines, "{}"))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise BackupError(f"{path}: not a backup of the controller")
            if header.get("migration") != HEAD:
                raise BackupError(f"{path}: made with migration {header.get('migration')}, this release has {HEAD}")
            for old in reversed(METADATA.sorted_tables):
                if not replace and connection.execute(sa.select(old).limit(1)).first():
                    raise BackupError(f"the database is not empty: `--replace` overwrites what it holds ({old.name})")
                connection.execute(sa.delete(old))
            for line in lines:
                entry = json.loads(line)
                if isinstance(entry, list) and table is not None:
                    waiting.append(dict(zip(columns, entry, strict=True)))
                    rows += 1
                    if len(waiting) < ROWS:
                        continue
                if waiting and table is not None:
                    connection.execute(sa.insert(table), waiting)
                    waiting = []
                if isinstance(entry, dict):
                    table, columns = tables.get(entry.get("table", "")), entry.get("columns", [])
                    told = entry.get("rows", told)
            if told != rows:
                raise BackupError(f"{path}: not complete: {rows} rows of {told if told is not None else 'more'}")
            if engine.dialect.name == "postgresql":
                for numbered in (AUDIT, REVISIONS, SERIES):
                    last = sa.func.coalesce(sa.select(sa.func.max(numbered.c.id)).scalar_subquery(), 0) + 1
                    name = sa.func.pg_get_serial_sequence(numbered.name, "id")
                    connection.execute(sa.select(sa.func.setval(name, last, False)))
    except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise BackupError(f"{path}: {reason.lower()}") from None
    return rows
