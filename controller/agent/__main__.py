# SPDX-License-Identifier: Apache-2.0
"""Command line: `python -m accesspoint.controller.agent --engine tls://HOST:PORT --name NAME --state DIRECTORY`."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from .. import config, log
from ..realtime import raise_priority
from .process import Agent, Options


def agent(
    name: Annotated[str, typer.Option(help="Proposed name; adoption may choose another one.")],
    engine: Annotated[list[str], typer.Option(help="tls://HOST:PORT of NATS; several of one cluster.")],
    state: Annotated[Path, typer.Option(help="State folder: its key, and the last desired state.")],
    engine_ca: Annotated[Path, typer.Option(help="CA certificate (PEM) used to verify the engine.")],
    enrol: Annotated[Path, typer.Option(help="Credentials for its announcement.")],
    config_file: Annotated[
        Path | None, typer.Option("--config", help="Proposed configuration of its access point.")
    ] = None,
    log_format: Annotated[log.LogFormat, typer.Option(help="Log format: text or json.")] = log.LogFormat.TEXT,
) -> None:
    """Keep one access point under control, next to its switch; with the service when it is there, else alone."""
    log.begin(log_format)
    try:
        offered = None if config_file is None else config.load(config_file).access_points
        if offered is not None and len(offered) != 1:
            raise config.ConfigError(f"{config_file}: {len(offered)} access points: an agent has one")
        asyncio.run(run(Options(engine, engine_ca, enrol, state, name, offered[0] if offered else None)))
    except config.ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


async def run(options: Options) -> None:
    """Run until SIGINT or SIGTERM; raises `ConfigError`."""
    agent = Agent(options, lambda name: print(f"ready {name}", flush=True))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    raise_priority()
    print(f"agent {agent.id}", flush=True)
    working, stopping = asyncio.create_task(agent.run()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        await agent.stop()
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def main() -> None:
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command()(agent)
    application()


if __name__ == "__main__":
    main()
