# SPDX-License-Identifier: Apache-2.0
"""Command line: `python -m controller --config FILE.json [--rest HOST:PORT] [--stats FILE.csv]`."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import app, config


def controller(
    config_file: Annotated[Path, typer.Option("--config", help="The access points and their ports, as JSON.")],
    rest: Annotated[str, typer.Option(help="Where the REST API listens; port 0 chooses a free one.")] = "127.0.0.1:0",
    stats: Annotated[Path | None, typer.Option(help="Log queue, feedback and rates here, as CSV.")] = None,
) -> None:
    """Control access points over P4Runtime, and serve the REST API."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # finsy and grpc repeat, with tracebacks, what is said here in one line.
    logging.getLogger("finsy").setLevel(logging.CRITICAL)
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    try:
        loaded = config.load(config_file)
    except config.ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    raise typer.Exit(app.main(loaded, rest, stats))


if __name__ == "__main__":
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command()(controller)
    application()
