# SPDX-License-Identifier: Apache-2.0
"""Usage of stations. Its columns follow `MEASURES`, as those of history: they are added at the start."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "station_use",
        sa.Column("access_point", sa.String(64), primary_key=True),
        sa.Column("resolution", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("station", sa.BigInteger, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
