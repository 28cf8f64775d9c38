# SPDX-License-Identifier: Apache-2.0
"""Revisions: every desired state has a number, and a change names the one that it is based on."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    revisions = op.create_table(
        "revisions",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("access_point", sa.String(64), index=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("config", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "controllers",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("started", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    for name in ("access_points", "settings"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("revision", sa.Integer, nullable=False, server_default="0"))
    # Each existing row is its own first revision.
    connection = op.get_bind()
    known = sa.table("access_points", *map(sa.column, ("name", "config", "changed", "revision")))
    for row in connection.execute(sa.select(known)).all():
        values = {"access_point": row.name, "time": row.changed, "actor": "migration", "config": row.config}
        number = connection.scalar(sa.insert(revisions).values(**values).returning(revisions.c.id))
        connection.execute(sa.update(known).where(known.c.name == row.name).values(revision=number))
