# SPDX-License-Identifier: Apache-2.0
"""alembic runs this; `accesspoint.controller.state.database.migrate` hands it the connection."""

from alembic import context

from accesspoint.controller.state.database import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
