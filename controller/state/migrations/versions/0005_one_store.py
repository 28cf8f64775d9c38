# SPDX-License-Identifier: Apache-2.0
"""Starts of controllers are not counted any more; the revision in effect is kept for a restart."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_table("controllers")
    with op.batch_alter_table("access_points") as table:
        table.add_column(sa.Column("in_effect", sa.Integer))
