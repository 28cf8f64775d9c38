# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.topologies.switch_client ADDRESS ...`: ports and program of a running switch, over gNMI and
P4Runtime. A program of its own, as `mn` runs in the system's Python, which has no gRPC."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from finsy import GNMIClient, GNMIPath, P4ClientError, P4Schema, Switch, SwitchOptions
from finsy.gnmiclient import GNMIClientError
from finsy.proto import gnmi

from accesspoint.topologies.bmv2_commands import entities, p4info_of
from accesspoint.topologies.links.profiles import parse_rate, parse_time

TIMEOUT = 60.0  # s
COUNTERS = ("in-pkts", "out-pkts", "out-discards")


def port_updates(interface: str, number: int, model: Mapping[str, Any]) -> list[tuple[GNMIPath, Any]]:
    """Return what gNMI sets to make an interface a port with a link model, as `apswitch --link` has it."""
    port = GNMIPath(f"/interfaces/interface[name={interface}]")
    updates: list[tuple[GNMIPath, Any]] = [(port / "config/id", gnmi.TypedValue(uint_val=number))]
    link: dict[str, object] = {
        leaf: str(round(parse_time(model[leaf]) * 1e9)) for leaf in ("delay", "jitter") if leaf in model
    }
    link |= {"loss": str(model["loss"])} if "loss" in model else {}
    if link:
        updates.append((port / "link-model/config", _json(link)))
    shaper: dict[str, object] = {"cir": str(parse_rate(str(model["rate"])))} if "rate" in model else {}
    shaper |= {"max-queue-depth-packets": int(model["limit"])} if "limit" in model else {}
    if shaper:
        scheduler = {
            "sequence": 0,
            "output": {"config": {"output-type": "INTERFACE"}},
            "one-rate-two-color": {"config": shaper},
        }
        policy = GNMIPath(f"/qos/scheduler-policies/scheduler-policy[name={interface}]")
        binding = GNMIPath(f"/qos/interfaces/interface[interface-id={interface}]")
        updates.append((policy, _json({"schedulers": {"scheduler": [scheduler]}})))
        updates.append((binding / "output/scheduler-policy/config/name", interface))
    return updates


async def add_port(client: GNMIClient, interface: str, number: int, model: Mapping[str, Any]) -> None:
    await client.set(update=port_updates(interface, number, model))


async def remove_port(client: GNMIClient, interface: str) -> None:
    await client.set(delete=[GNMIPath(f"/interfaces/interface[name={interface}]")])


async def show_ports(client: GNMIClient) -> None:
    """Print a line for each port, as `port 1 s1-eth1 UP in-pkts 3 out-pkts 3 out-discards 0`."""
    ports: dict[str, dict[str, Any]] = {}
    for update in await client.get(GNMIPath("/interfaces/interface[name=*]/state")):
        ports.setdefault(update.path["interface", "name"], {})[update.path.last] = update.value
    for name, state in sorted(ports.items(), key=lambda item: int(item[1]["id"])):
        counters = " ".join(f"{counter} {state.get(counter, 0)}" for counter in COUNTERS)
        print(f"port {state['id']} {name} {state['oper-status']} {counters}")


async def load(address: str, device_id: int, program: Path, p4info: Path | None, commands: Path | None) -> None:
    """Set the pipeline and write what commands of BMv2 say. p4info: None: made of the program's tables.

    Any client may become primary after this one, as its election id is the lowest."""
    with tempfile.TemporaryDirectory() as folder:
        if p4info is None:
            p4info = Path(folder) / "p4info.txtpb"
            p4info.write_text(str(p4info_of(json.loads(program.read_text()))))
        options = SwitchOptions(
            p4info=p4info, p4blob=program, device_id=device_id, initial_election_id=1, p4force=True, fail_fast=True
        )
        async with Switch("switch", address, options) as switch:
            if commands:
                inserted, modified = entities(commands.read_text().splitlines(), P4Schema(p4info))
                await switch.insert(inserted)
                await switch.modify(modified)


def _json(value: object) -> gnmi.TypedValue:
    return gnmi.TypedValue(json_ietf_val=json.dumps(value).encode())


async def _run(options: argparse.Namespace) -> None:
    async with asyncio.timeout(TIMEOUT):
        if options.action == "load":
            await load(options.address, options.device_id, options.program, options.p4info, options.commands)
            return
        async with GNMIClient(options.address) as client:
            if options.action == "add":
                await add_port(client, options.interface, options.number, json.loads(options.model))
            elif options.action == "remove":
                await remove_port(client, options.interface)
            else:
                await show_ports(client)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m accesspoint.topologies.switch_client")
    parser.add_argument("address")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("ports")
    add = actions.add_parser("add")
    add.add_argument("interface")
    add.add_argument("number", type=int)
    add.add_argument("model", help="JSON")
    actions.add_parser("remove").add_argument("interface")
    pipeline = actions.add_parser("load")
    pipeline.add_argument("device_id", type=int)
    pipeline.add_argument("program", type=Path)
    pipeline.add_argument("--p4info", type=Path)
    pipeline.add_argument("--commands", type=Path, help="a file of BMv2's runtime commands")
    try:
        asyncio.run(_run(parser.parse_args(argv)))
    except GNMIClientError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except P4ClientError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except (OSError, ValueError, TimeoutError) as error:
        print(f"error: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
