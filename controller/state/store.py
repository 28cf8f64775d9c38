# SPDX-License-Identifier: Apache-2.0
"""Desired state, tokens, audit log and idempotency keys. Every method is one transaction, and blocks."""

import hashlib
import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ..config import AccessPointConfig, ConfigError, Ncr
from ..mistakes import one_line
from .database import ACCESS_POINTS, AUDIT, IDEMPOTENCY, REVISIONS, SETTINGS, TOKENS, writing
from .history import delete_series

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""Each role has the rights of the ones before: read; change access points; add and remove them, tokens, audit."""

TOKEN_PREFIX = "ap_"
"""So that scanners for leaked secrets can find them."""
IDEMPOTENCY_SECONDS = 86_400
UNANSWERED_SECONDS = 60.0
"""Seconds after which nobody waits any more for a replica that ended in the middle of a request."""
AUDIT_SECONDS = 400 * 86_400
MAX_REVISIONS = 100
"""Revisions that are kept of one access point."""
MAX_SESSIONS = 100
"""Sessions of browsers that one token has opened; one more ends the oldest."""
FILE = "configuration file"
"""Actor of changes by the configuration file."""
THERE = ~ACCESS_POINTS.c.removed


class Conflict(Exception):
    """The state that a change was based on has changed: another replica was faster."""


class LastAdmin(Exception):
    """Without this token nobody could do what admins do."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its role. The secret itself is kept only by its user."""

    id: str
    name: str
    role: Role
    kind: str
    created: float
    expires: float | None
    revoked: float | None
    parent: str | None

    def valid(self, now: float) -> bool:
        """Return True while the token is valid; `now` in seconds since the epoch."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the audit log: actor, action and result."""

    actor: str
    client: str
    action: str
    path: str
    status: int
    change: object


@dataclass(frozen=True, slots=True)
class Revision:
    """Desired configuration of an access point, from a moment on."""

    number: int
    time: float
    actor: str
    config: dict[str, Any]


def digest(secret: str) -> str:
    """Return the hash of a secret, which is kept. Of 256 random bits a plain hash cannot be reversed by trying."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> str:
    """Return the secret of a new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def document(config: AccessPointConfig) -> dict[str, Any]:
    """Return a configuration as it was given, without the defaults."""
    return config.model_dump(mode="json", exclude_unset=True)


class Store:
    """Persistent state of the service."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._write = writing(engine)

    def access_points(self) -> list[dict[str, Any]]:
        """Return the desired access points, as they were written."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(ACCESS_POINTS.c.config).where(THERE).order_by(ACCESS_POINTS.c.name))
            return [json.loads(row.config) for row in rows]

    def revisions(self) -> dict[str, int]:
        """Return the revision of each desired access point."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(ACCESS_POINTS.c.name, ACCESS_POINTS.c.revision).where(THERE))
            return {row.name: row.revision for row in rows}

    def access_point(self, name: str) -> tuple[dict[str, Any], int] | None:
        """Return a desired access point, as it was written, and its revision, or None."""
        where = (ACCESS_POINTS.c.name == name) & THERE
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(ACCESS_POINTS.c.config, ACCESS_POINTS.c.revision).where(where)).first()
        return (json.loads(row.config), row.revision) if row else None

    def in_effect(self, name: str, revision: int) -> None:
        """Note the revision in effect, for the next start."""
        with self._write.begin() as connection:
            where = (ACCESS_POINTS.c.name == name) & THERE
            connection.execute(sa.update(ACCESS_POINTS).where(where).values(in_effect=revision))

    def fallback(self, name: str) -> tuple[dict[str, Any], int] | None:
        """Return what was in effect last, and its revision; None: that is what is desired, or not known."""
        where = (REVISIONS.c.access_point == name) & REVISIONS.c.config.is_not(None)
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(ACCESS_POINTS).where(ACCESS_POINTS.c.name == name, THERE)).first()
            if row is None or row.in_effect is None or row.in_effect >= row.revision:
                return None
            earlier = sa.select(REVISIONS).where(where, REVISIONS.c.id <= row.in_effect)
            found = connection.execute(earlier.order_by(REVISIONS.c.id.desc()).limit(1)).first()
        return (json.loads(found.config), row.in_effect) if found else None

    def standing(self, name: str) -> tuple[bool, int]:
        """Return whether an access point is desired now, and the newest revision of all."""
        with self.engine.connect() as connection:
            newest = connection.scalar(sa.select(sa.func.max(REVISIONS.c.id))) or 0
            row = connection.execute(sa.select(ACCESS_POINTS.c.name).where((ACCESS_POINTS.c.name == name) & THERE))
            return row.first() is not None, newest

    def revisions_of(self, name: str, limit: int, offset: int) -> tuple[list[Revision], int]:
        """Return revisions of an access point, newest first, and their total number."""
        where = (REVISIONS.c.access_point == name) & REVISIONS.c.config.is_not(None)
        with self.engine.connect() as connection:
            total = connection.scalar(sa.select(sa.func.count()).select_from(REVISIONS).where(where)) or 0
            rows = connection.execute(
                sa.select(REVISIONS).where(where).order_by(REVISIONS.c.id.desc()).limit(limit).offset(offset)
            )
            return [_revision(row) for row in rows], total

    def revision(self, name: str, number: int) -> Revision | None:
        """Return one revision of an access point, or None."""
        where = (REVISIONS.c.access_point == name) & (REVISIONS.c.id == number) & REVISIONS.c.config.is_not(None)
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(REVISIONS).where(where)).first()
        return _revision(row) if row else None

    def adopt(self, wanted: Iterable[AccessPointConfig] | None) -> list[dict[str, Any]]:
        """Adopt the configuration file: of file and database, the later change counts. Returns `access_points`.

        An access point whose part of the file is as it was at the last start keeps what was changed over REST, also
        its removal; a new or changed part takes its place; one that is gone from the file goes. None: there is no
        file, and nothing changes.
        """
        if wanted is None:
            return self.access_points()
        parts = {config.name: json.dumps(document(config), sort_keys=True) for config in wanted}
        with self._write.begin() as connection:
            if connection.dialect.name == "postgresql":
                # Two replicas start at once: the second finds the rows of the first.
                connection.execute(sa.text("LOCK TABLE access_points IN SHARE ROW EXCLUSIVE MODE"))
            known = {row.name: row.file_hash for row in connection.execute(sa.select(ACCESS_POINTS))}
            for name, file_hash in known.items():
                if file_hash is not None and name not in parts:
                    connection.execute(sa.delete(ACCESS_POINTS).where(ACCESS_POINTS.c.name == name))
                    _revise(connection, name, None, FILE)
            for name, part in parts.items():
                file_hash = hashlib.sha256(part.encode()).hexdigest()
                if known.get(name) == file_hash:
                    continue
                values = _values(part, _revise(connection, name, part, FILE)) | {"file_hash": file_hash}
                if name in known:
                    connection.execute(sa.update(ACCESS_POINTS).where(ACCESS_POINTS.c.name == name).values(**values))
                else:
                    connection.execute(sa.insert(ACCESS_POINTS).values(name=name, **values))
        return self.access_points()

    def put(self, config: AccessPointConfig, based_on: int | None, change: Change) -> int:
        """Keep a desired access point; returns its new revision. Raises `Conflict` unless its revision is `based_on`.

        None: the access point is new.
        """
        part = json.dumps(document(config), sort_keys=True)
        is_named = ACCESS_POINTS.c.name == config.name
        with self._write.begin() as connection:
            revision = _revise(connection, config.name, part, change.actor)
            values = _values(part, revision)
            before = ACCESS_POINTS.c.removed if based_on is None else THERE & (ACCESS_POINTS.c.revision == based_on)
            if not connection.execute(sa.update(ACCESS_POINTS).where(is_named, before).values(**values)).rowcount:
                if based_on is not None:
                    raise Conflict(config.name)
                try:
                    connection.execute(sa.insert(ACCESS_POINTS).values(name=config.name, **values))
                except IntegrityError:
                    raise Conflict(config.name) from None
            audit_line(connection, change)
        return revision

    def remove(self, name: str, based_on: int, change: Change) -> None:
        """Forget an access point with its history; one of the file is only marked, else the next start would bring it
        back. Raises `Conflict` unless its revision is `based_on`."""
        where = (ACCESS_POINTS.c.name == name) & (ACCESS_POINTS.c.revision == based_on)
        with self._write.begin() as connection:
            revision = _revise(connection, name, None, change.actor)
            values = {"removed": True, "changed": time.time(), "revision": revision, "in_effect": None}
            if not connection.execute(sa.update(ACCESS_POINTS).where(where, THERE).values(**values)).rowcount:
                raise Conflict(name)
            connection.execute(
                sa.delete(ACCESS_POINTS).where(ACCESS_POINTS.c.name == name, ACCESS_POINTS.c.file_hash.is_(None))
            )
            delete_series(connection, name)
            audit_line(connection, change)

    def ncr_defaults(self) -> tuple[Ncr, int | None]:
        """Return the default NCR parameters, and their revision (None: never changed); raises `ConfigError`."""
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(SETTINGS).where(SETTINGS.c.name == "ncr")).first()
        try:
            return (Ncr.model_validate_json(row.value), row.revision) if row else (Ncr(), None)
        except ValueError as error:
            raise ConfigError(f"database: the defaults of NCR: {one_line(error)}") from None  # type: ignore[arg-type]

    def put_ncr_defaults(self, ncr: Ncr, based_on: int | None, change: Change) -> int:
        """Keep other defaults; returns their new revision. Raises `Conflict` unless it is `based_on` now."""
        value = ncr.model_dump_json(exclude_unset=True)
        with self._write.begin() as connection:
            revision = _revise(connection, None, value, change.actor)
            where = (SETTINGS.c.name == "ncr") & (SETTINGS.c.revision == (based_on if based_on is not None else -1))
            values = {"value": value, "revision": revision}
            if not connection.execute(sa.update(SETTINGS).where(where).values(**values)).rowcount:
                if based_on is not None:
                    raise Conflict("the defaults")
                try:
                    connection.execute(sa.insert(SETTINGS).values(name="ncr", **values))
                except IntegrityError:
                    raise Conflict("the defaults") from None
            audit_line(connection, change)
        return revision

    def new_token(
        self,
        name: str,
        role: Role,
        expires: float | None = None,
        change: Change | None = None,
        kind: str = "token",
        parent: str | None = None,
        secret: str | None = None,
    ) -> tuple[Token, str]:
        """Create a token; return it with its secret, which is shown only once; `expires` in seconds since the epoch."""
        secret = secret or new_secret()
        token = Token(secrets.token_hex(6), name, role, kind, time.time(), expires, None, parent)
        values = {field: getattr(token, field) for field in Token.__slots__}
        with self._write.begin() as connection:
            connection.execute(sa.insert(TOKENS).values(hash=digest(secret), **values))
            if kind == "session":
                mine = (TOKENS.c.kind == kind) & (TOKENS.c.parent == parent)
                last = sa.select(TOKENS.c.id).where(mine).order_by(TOKENS.c.created.desc()).limit(MAX_SESSIONS)
                connection.execute(sa.delete(TOKENS).where(mine, TOKENS.c.id.not_in(last)))
            if change:
                audit_line(connection, change)
        return token, secret

    def tokens(self) -> dict[str, Token]:
        """Return every token by the hash of its secret."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(TOKENS).order_by(TOKENS.c.created)).mappings().all()
        return {row["hash"]: Token(**{field: row[field] for field in Token.__slots__}) for row in rows}

    def revoke(self, token_id: str, change: Change | None = None) -> None:
        """Revoke a token, and the sessions that were opened with it; raises `LastAdmin`."""
        mine = (TOKENS.c.id == token_id) | (TOKENS.c.parent == token_id)
        with self._write.begin() as connection:
            # Two tokens are revoked at once, at two replicas: the second waits for the first.
            admins = sa.select(TOKENS.c.id).where(
                TOKENS.c.role == "admin",
                TOKENS.c.kind == "token",
                TOKENS.c.revoked.is_(None),
                TOKENS.c.expires.is_(None) | (TOKENS.c.expires > time.time()),
            )
            if [*connection.scalars(admins.with_for_update())] == [token_id]:
                raise LastAdmin
            connection.execute(sa.update(TOKENS).where(mine, TOKENS.c.revoked.is_(None)).values(revoked=time.time()))
            if change:
                audit_line(connection, change)

    def audit(self, change: Change) -> None:
        """Log a change that changed no table, as of a flow's weight."""
        with self._write.begin() as connection:
            audit_line(connection, change)

    def audited(self, limit: int, offset: int, actor: str | None, start: float, end: float) -> tuple[list[Any], int]:
        """Return lines of the audit log, newest first, and their total number."""
        where = [AUDIT.c.time >= start, AUDIT.c.time <= end]
        if actor is not None:
            where.append(AUDIT.c.actor == actor)
        with self.engine.connect() as connection:
            total = connection.scalar(sa.select(sa.func.count()).select_from(AUDIT).where(*where)) or 0
            rows = connection.execute(
                sa.select(AUDIT).where(*where).order_by(AUDIT.c.id.desc()).limit(limit).offset(offset)
            ).mappings()
            return [{**row, "change": json.loads(row["change"])} for row in rows], total

    def reserve(self, actor: str, key: str, fingerprint: str) -> tuple[str, dict[str, Any] | None] | None:
        """Begin a request with this idempotency key: None when it is the first. Else the fingerprint of the first one,
        and its answer; None while that is on its way, here or at another replica."""
        now = time.time()
        mine = (IDEMPOTENCY.c.actor == actor) & (IDEMPOTENCY.c.key == key)
        unanswered = (IDEMPOTENCY.c.answer == "") & (IDEMPOTENCY.c.created < now - UNANSWERED_SECONDS)
        values = {"actor": actor, "key": key, "fingerprint": fingerprint, "created": now, "answer": ""}
        try:
            with self._write.begin() as connection:
                old = IDEMPOTENCY.c.created < now - IDEMPOTENCY_SECONDS
                connection.execute(sa.delete(IDEMPOTENCY).where(old | (mine & unanswered)))
                connection.execute(sa.insert(IDEMPOTENCY).values(**values))
            return None
        except IntegrityError:
            with self.engine.connect() as connection:
                row = connection.execute(sa.select(IDEMPOTENCY).where(mine)).one_or_none()
        if row is None:
            # The first request has just failed: nothing was done.
            return fingerprint, None
        return row.fingerprint, json.loads(row.answer) if row.answer else None

    def remember(self, actor: str, key: str, answer: dict[str, Any] | None) -> None:
        """Keep the answer for a request that is sent again; None: it failed, and may be tried again."""
        mine = (IDEMPOTENCY.c.actor == actor) & (IDEMPOTENCY.c.key == key)
        with self._write.begin() as connection:
            if answer is None:
                connection.execute(sa.delete(IDEMPOTENCY).where(mine))
            else:
                connection.execute(sa.update(IDEMPOTENCY).where(mine).values(answer=json.dumps(answer)))

    def tidy(self) -> None:
        """Delete old rows: lines of the audit log, and sessions that have ended."""
        now = time.time()
        with self._write.begin() as connection:
            connection.execute(sa.delete(AUDIT).where(AUDIT.c.time < now - AUDIT_SECONDS))
            current = sa.select(ACCESS_POINTS.c.revision)
            old = (REVISIONS.c.time < now - AUDIT_SECONDS) & REVISIONS.c.id.not_in(current)
            connection.execute(sa.delete(REVISIONS).where(old))
            connection.execute(sa.delete(TOKENS).where(TOKENS.c.kind == "session", TOKENS.c.expires < now))

    def check(self) -> None:
        """Check that the database answers."""
        with self.engine.connect() as connection:
            connection.execute(sa.select(1))


def _values(part: str, revision: int) -> dict[str, Any]:
    return {"config": part, "removed": False, "changed": time.time(), "revision": revision}


def _revise(connection: sa.Connection, name: str | None, part: str | None, actor: str) -> int:
    """Add a revision, and delete the oldest above `MAX_REVISIONS`."""
    mine = REVISIONS.c.access_point.is_(None) if name is None else REVISIONS.c.access_point == name
    last = sa.select(REVISIONS.c.id).where(mine).order_by(REVISIONS.c.id.desc()).offset(MAX_REVISIONS - 1).limit(1)
    connection.execute(sa.delete(REVISIONS).where(mine, REVISIONS.c.id <= last.scalar_subquery()))
    values = {"access_point": name, "time": time.time(), "actor": actor, "config": part}
    number = connection.scalar(sa.insert(REVISIONS).values(**values).returning(REVISIONS.c.id))
    assert number is not None
    return int(number)


def _revision(row: Any) -> Revision:
    return Revision(row.id, row.time, row.actor, json.loads(row.config))


def audit_line(connection: sa.Connection, change: Change) -> None:
    """Add a line to the audit log, in the transaction of its change."""
    connection.execute(
        sa.insert(AUDIT).values(
            time=time.time(),
            actor=change.actor,
            client=change.client,
            action=change.action,
            path=change.path,
            status=change.status,
            change=json.dumps(change.change),
        )
    )
