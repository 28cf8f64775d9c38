# SPDX-License-Identifier: Apache-2.0
"""Agents on machines of their own: the adopted ones, and the access point of each."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("access_point", sa.String(64), nullable=False),
        sa.Column("adopted", sa.Float, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
    )
