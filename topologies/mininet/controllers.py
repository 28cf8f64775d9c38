# SPDX-License-Identifier: Apache-2.0
"""The controller as a process next to the access points that it runs."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from accesspoint.topologies.features import Features, configured
from accesspoint.topologies.mininet.nodes import ApSwitch
from accesspoint.topologies.namespaces.contain import end_with_parent, stop_process
from accesspoint.topologies.processes import last_line
from accesspoint.topologies.requirements import PIPELINE, ROOT, LabError, python
from accesspoint.topologies.targets import Port

TIMEOUT = 120.0  # s, of a busy machine, too: a controller that has ended is seen at once


def entry(
    access_point: ApSwitch,
    ports: Mapping[int, Port],
    features: Features,
    uplink: int | None = None,
    pipeline: Mapping[str, Path] = MappingProxyType(PIPELINE),
    settings: Mapping[str, Any] = MappingProxyType({}),
    capacity: Literal["auto"] | None = None,
) -> dict[str, Any]:
    """Return an access point's part of a controller's configuration
    (accesspoint.controller.config.AccessPointConfig). uplink: its port, None for the last one. settings: more of the
    configuration (accesspoint.topologies.features.configured). capacity: of every port; None: the port's rate."""
    uplink = max(ports) if uplink is None else uplink
    told = [
        {
            "port": number,
            "role": "uplink" if number == uplink else "station",
            "capacity_bps": capacity or port.rate,
            "queue_limit": port.limit,
            "roaming": number in access_point.radios,
            "isolated": access_point.isolated or number not in access_point.radios,
        }
        for number, port in ports.items()
    ]
    return {
        "name": access_point.name,
        "address": access_point.grpc,
        "device_id": access_point.device_id,
        "pipeline": {name: str(path) for name, path in pipeline.items()},
        **configured(told, asdict(features), settings),
    }


@dataclass
class RunningController:
    """A controller that answers: REST at `url`, for a client with the `token`."""

    process: "subprocess.Popen[bytes]"
    url: str
    token: str

    def stop(self) -> None:
        stop_process(self.process)


def start(
    directory: Path,
    access_points: Sequence[dict[str, Any]],
    rest: str = "127.0.0.1:0",
    stats: Path | None = None,
    inside: Callable[..., list[str]] = lambda *command: [*command],
) -> RunningController:
    """Starts a controller and returns once every access point is ready. Raises LabError.

    directory: takes its configuration, log and state. rest: REST's address; port 0: any. stats: a CSV file for its
    measurements. inside: makes of its command one that runs it in another network namespace.
    """
    config = directory / "controller.json"
    config.write_text(json.dumps({"access_points": list(access_points)}, indent=2) + "\n")
    # The controller begins with these settings, not with those of an earlier one.
    for kept in directory.glob("controller.db*"):
        kept.unlink()
    command = [python(), "-m", "accesspoint.controller", "--config", str(config), "--rest", rest]
    if stats:
        command += ["--stats", str(stats)]
    output, errors = directory / "controller.out", directory / "controller.log"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            inside(*command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            preexec_fn=end_with_parent,
        )  # fmt: skip
    ready = {f"ready {access_point['name']}" for access_point in access_points}
    deadline = time.monotonic() + TIMEOUT
    try:
        while process.poll() is None and time.monotonic() < deadline:
            lines = output.read_text().splitlines()
            urls = [line.split()[1] for line in lines if line.startswith("rest ")]
            if urls and ready.issubset(lines):
                return RunningController(process, urls[0], config.with_suffix(".token").read_text().strip())
            time.sleep(0.02)
        raise LabError(f"the controller did not start: {last_line(errors) or last_line(output) or f'see {errors}'}")
    except BaseException:
        stop_process(process)
        raise


def change_ports(url: str, token: str, name: str, ports: list[dict[str, Any]]) -> None:
    """Give the controller at `url` other ports of an access point. Raises OSError."""
    request = urllib.request.Request(
        f"{url}/api/v1/access-points/{name}/config",
        json.dumps({"ports": ports}).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/merge-patch+json"},
        method="PATCH",
    )
    urllib.request.urlopen(request, timeout=TIMEOUT).close()
