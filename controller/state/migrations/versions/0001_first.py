# SPDX-License-Identifier: Apache-2.0
"""The first tables. A migration is never edited once it is released: the next change is a new one."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

COUNTS = (
    "delay_max_us", "queue_packets", "delay_us", "feedback_device", "feedback_downlink", "feedback_uplink",
    "feedback_flow", "flows_active", "span_ms", "sent_downlink_bytes", "sent_uplink_bytes", "sent_other_bytes",
    "arrived_downlink_bytes", "arrived_uplink_bytes", "arrived_other_bytes", "marked_packets", "dropped_packets",
    "refused_packets", "filtered_packets",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "access_points",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("file_hash", sa.String(64)),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("changed", sa.Float, nullable=False),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float),
        sa.Column("revoked", sa.Float),
        sa.Column("parent", sa.String(32)),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("client", sa.String(64), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
    )
    op.create_table(
        "idempotency",
        sa.Column("actor", sa.String(32), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("access_point", sa.String(64), nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.UniqueConstraint("access_point", "port"),
    )
    op.create_table(
        "history",
        sa.Column("resolution", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("samples", sa.Integer, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS),
        sqlite_with_rowid=False,
    )
