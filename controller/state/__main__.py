# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.controller.state backup|restore|token`: commands on the controller's machine.

python -m accesspoint.controller.state backup --database sqlite:///controller.db FILE
python -m accesspoint.controller.state restore --database postgresql://user@host/name FILE
python -m accesspoint.controller.state token --database sqlite:///controller.db --role admin
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy.exc import SQLAlchemyError

from ..config import ConfigError
from . import backup as backups
from .database import connect, explain
from .store import ROLES, Role, Store

Database = Annotated[str, typer.Option(help="sqlite:///FILE or postgresql://USER@HOST/NAME")]
File = Annotated[Path, typer.Argument()]

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@application.command()
def backup(file: File, database: Database) -> None:
    """Write all state and history into FILE, while the controller runs."""
    print(f"{backups.backup(connect(database), file)} rows in {file}")


@application.command()
def restore(file: File, database: Database, replace: Annotated[bool, typer.Option("--replace")] = False) -> None:
    """Restore FILE into the database of a controller that is stopped."""
    print(f"{backups.restore(connect(database), file, replace)} rows restored")


@application.command()
def token(
    database: Database,
    role: Annotated[str, typer.Option(help=", ".join(ROLES))] = "admin",
    name: Annotated[str, typer.Option(help="Name of its holder, as in the audit log.")] = "console",
    days: Annotated[float | None, typer.Option(help="When it expires; without, never.")] = None,
) -> None:
    """Make a token and print it, when all others are lost. A running controller accepts it within a second."""
    known: dict[str, Role] = {known: known for known in ROLES}
    if role not in known:
        raise ConfigError(f"--role {role}: one of {', '.join(ROLES)}")
    expires = None if days is None else time.time() + days * 86_400
    print(Store(connect(database)).new_token(name, known[role], expires)[1])


def main() -> int:
    """Run; an error is one line and code 2."""
    try:
        application()
    except (ConfigError, backups.BackupError) as error:
        print(f"error: {error}", file=sys.stderr)
    except SQLAlchemyError as error:
        print(f"error: {explain(error)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
