# SPDX-License-Identifier: Apache-2.0
"""Queues read, watched and set over gNMI: run by the page beside it, on files as ports, so without root."""

import asyncio
import json
import socket
import subprocess
import tempfile
from pathlib import Path

from finsy import GNMIClient, GNMIPath
from finsy.proto import gnmi

ROOT = Path(__file__).resolve().parents[2]
POLICY = {
    "schedulers": {
        "scheduler": [
            {  # the port: 20 Mbit/s over all queues, 200 packets
                "sequence": 0,
                "output": {"config": {"output-type": "INTERFACE"}},
                "one-rate-two-color": {"config": {"cir": "20000000", "max-queue-depth-packets": 200}},
            },
            {  # voice: first, but never more than 1 Mbit/s
                "sequence": 1,
                "config": {"priority": "STRICT"},
                "inputs": {"input": [{"id": "voice", "config": {"queue": "7"}}]},
                "one-rate-two-color": {"config": {"cir": "1000000", "bc": 3028}},
            },
            {  # of the rest video gets three times what everything else gets
                "sequence": 2,
                "inputs": {
                    "input": [
                        {"id": "video", "config": {"queue": "4", "weight": "3"}},
                        {"id": "rest", "config": {"queue": "0", "weight": "1"}},
                    ]
                },
            },
        ]
    }
}


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def play(client: GNMIClient) -> None:
    policy = GNMIPath("/qos/scheduler-policies/scheduler-policy[name=home]")
    binding = GNMIPath("/qos/interfaces/interface[interface-id=b]/output/scheduler-policy/config/name")
    queues = GNMIPath("/qos/interfaces/interface[interface-id=b]/output/queues/queue")
    value = gnmi.TypedValue(json_ietf_val=json.dumps(POLICY).encode())
    # One request, all or nothing.
    await client.set(update=[(policy, value), (binding, "home")])
    for update in await client.get(queues / "state/transmit-pkts"):
        print(update.path, update.value)
    changes = client.subscribe()
    changes.on_change(GNMIPath("/interfaces/interface[name=*]/state/oper-status"))
    async for update in changes.synchronize():
        print(update.path, update.value)
    await client.set(update=[(GNMIPath("/interfaces/interface[name=b]/config/enabled"), False)])
    async for update in changes.updates():
        print(update.path, update.value)
        break
    changes.cancel()


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name in ("a", "b"):
            (Path(directory) / f"{name}_in.pcap").write_bytes((ROOT / "docs/switch/example.pcap").read_bytes()[:24])
        address = free_address()
        command = [ROOT / "target/release/apswitch", ROOT / "p4src/compiled/ap.json", "--use-files", "0"]
        ports = ["-i", "1@a", "-i", "2@b", "--grpc-server-addr", address, "--log-level", "warn"]
        switch = subprocess.Popen([*command, *ports], cwd=directory)
        try:
            async with asyncio.timeout(60), GNMIClient(address) as client:
                while switch.poll() is None:
                    try:
                        socket.create_connection(address.split(":")).close()
                        break
                    except ConnectionRefusedError:
                        await asyncio.sleep(0.02)
                await play(client)
        finally:
            switch.terminate()
            switch.wait()


asyncio.run(main())
