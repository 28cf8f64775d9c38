# SPDX-License-Identifier: Apache-2.0
"""Command line: `python -m accesspoint.controller --config FILE.json [--rest HOST:PORT] [--database URL] [--stats
FILE.csv]`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import app, config, log
from .agent.program import Program
from .api.service import FILES

DATABASE = Path("controller.db")


def controller(
    config_file: Annotated[
        Path | None, typer.Option("--config", help="Access points and their ports, as JSON; REST may change them.")
    ] = None,
    rest: Annotated[str, typer.Option(help="Address of the REST API; port 0 chooses a free one.")] = "127.0.0.1:0",
    database: Annotated[
        str | None,
        typer.Option(
            help="Database URL: sqlite:///FILE (default: FILE.db next to --config); with --engine also "
            "postgresql://USER@HOST/NAME."
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Where a new database's first token goes; without it, FILE.token.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (chain) of the REST API, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    proxy: Annotated[
        list[str] | None, typer.Option(help="Address or network of a reverse proxy whose X-Forwarded-* is believed.")
    ] = None,
    stats: Annotated[Path | None, typer.Option(help="Log queue, feedback and rates here, as CSV.")] = None,
    files: Annotated[Path, typer.Option(help="Folder of the files that REST may name, as pipelines.")] = FILES,
    engine: Annotated[
        list[str] | None, typer.Option(help="tls://HOST:PORT of NATS: agents on machines of their own do the work.")
    ] = None,
    engine_keys: Annotated[
        Path | None, typer.Option(help="Folder with account.seed, ca.pem and service.creds of the engine.")
    ] = None,
    engine_copies: Annotated[
        int, typer.Option(help="How many servers of a cluster keep each value.", min=1, max=5)
    ] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Validate --config and every file it references, then exit.")
    ] = False,
    log_format: Annotated[log.LogFormat, typer.Option(help="Log format: text or json.")] = log.LogFormat.TEXT,
) -> None:
    """Control access points over P4Runtime, here or through their agents, and serve the REST API."""
    log.begin(log_format)
    beside = config_file or DATABASE
    try:
        if check:
            print(checked(config_file))
            raise typer.Exit(0)
        for name, path in (("--tls-cert", tls_cert), ("--tls-key", tls_key)):
            if path is not None and not path.is_file():
                raise config.ConfigError(f"{name} {path}: no such file")
        if (tls_cert is None) != (tls_key is None):
            raise config.ConfigError("--tls-cert and --tls-key: give both or none")
    except config.ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    options = app.Options(
        config_file=config_file,
        rest=rest,
        database=database or f"sqlite:///{beside.with_suffix('.db')}",
        token_file=token_file or beside.with_suffix(".token"),
        tls_cert=tls_cert,
        tls_key=tls_key,
        stats=stats,
        proxies=tuple(proxy or ()),
        files=files,
        engine=tuple(engine or ()),
        engine_keys=engine_keys,
        engine_copies=engine_copies,
    )
    raise typer.Exit(app.main(options))


def checked(path: Path | None) -> str:
    """Check the file and everything that it names; return one line. Raises `ConfigError`."""
    if path is None:
        raise config.ConfigError("--check: name a file after --config")
    found = config.load(path).access_points
    for access_point in found:
        try:
            Program(access_point.pipeline).target.check(access_point)
        except config.ConfigError as error:
            raise config.ConfigError(f"{path}: {access_point.name}: {error}") from None
    return f"{path}: in order: {', '.join(access_point.name for access_point in found)}"


def main() -> None:
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command()(controller)
    application()


if __name__ == "__main__":
    main()
