# SPDX-License-Identifier: Apache-2.0
"""finsy's example folders, with finsy's tests of them: networks, controllers, and the tables that it expects.

finsy's `demonet` starts Mininet by itself where it finds /usr/local/mininet/custom/p4switch.py, as in finsy's own
image; else it wants a container. The file is in finsy's checkout."""

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from accesspoint.checks.foreign.case import Case, Failed, NotRun, add
from accesspoint.checks.foreign.clients.finsy_client import CLIENT
from accesspoint.checks.foreign.stand import CLIENTS, MININET, Stand, last

STRATUM = Path(__file__).parents[1] / "stratum_bmv2.py"
BOTH = "apswitch", "bmv2"
NO_GNMI = "BMv2 has no gNMI; that of Stratum's is Stratum's own"
KNOWN = {
    "gnmi": {"bmv2": NO_GNMI},
    "hello": {"bmv2": NO_GNMI},
    "int": dict.fromkeys(
        BOTH,
        "its demo writes an entry into tables without a key, which P4_16 (section 14.2.1.1) gives none: both refuse it",
    ),
    "ngsdn": {
        "apswitch": "it asks for a sample of counters every 10000 ns; apswitch has one every 10 ms at most, and must "
        "refuse less (gNMI specification, 3.5.1.5.2)",
        "bmv2": NO_GNMI,
    },
    "mtls": {
        "apswitch": "of a refused client certificate the test wants the message of a closed socket; apswitch sends a "
        "TLS alert"
    },
    "simple": dict.fromkeys(
        BOTH,
        "the test calls Mininet's `iperf`, which may hang with any switch "
        "([mininet/mininet#1060](https://github.com/mininet/mininet/issues/1060)), and wants Mbit/s of it",
    ),
}
SEVERAL = "finsy gives no Thrift port, so that several BMv2 that have Thrift, as here, want the same one"
EXAMPLES = {
    "basic": "entries from a file, ping between all hosts, the expected tables",
    "flowcache": "flows set on packet-in and taken away when idle, ping",
    "gnmi": "a port's state by get and by subscription, on Stratum's switch",
    "hello": "three of Stratum's switches: flooding, learning by packet-in, a controller with a role, ping",
    "int": "in-band telemetry through three of Stratum's switches, the expected tables",
    "l2switch": "a learning switch: digests, idle timeouts, the expected tables",
    "mtls": "TLS with certificates of both sides, valid and not; without those of Stratum",
    "ngsdn": "a fabric of four of Stratum's switches: IPv6 pings, the expected tables",
    "simple": "a router: 1024 entries, the expected tables",
    "tls_demo": "TLS with certificates of both sides, a switch of each kind, ping",
    "tunnel": "tunnels over three switches, the expected tables",
}


def run(stand: Stand, name: str) -> str:
    """Run the tests of one example; return their number."""
    packages = CLIENTS.parent / "finsy"
    if not packages.is_dir():
        raise NotRun("shellous is missing: tools/install.sh foreign")
    if not MININET.is_dir() or not shutil.which("mn"):
        raise NotRun("Mininet is missing: apt install mininet")
    folder = stand.copy("finsy", "examples", "ci/demonet", "tests") / "examples"
    (stand.scratch / "bin/stratum_bmv2").symlink_to(STRATUM)
    Path("/etc/stratum").mkdir()
    Path("/etc/stratum/dummy.json").touch()
    # demonet asks the kernel for the address that it would reach this one from.
    subprocess.run(["ip", "route", "add", "10.254.254.254", "dev", "lo"], check=True)
    custom = Path("/usr/local/mininet/custom")
    custom.mkdir(parents=True)
    shutil.copy(folder.parent / "ci/demonet/p4switch.py", custom)
    output = stand.run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"),
        *("-k", "not stratum", f"tests/test_{name}.py"),
        cwd=folder,
        seconds=90,
        environment={"PYTHONPATH": str(packages)},
        succeeds=False,
    )
    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", output)
    if not re.search(r"^\d+ passed", output, re.M) or re.search(r"\d+ (?:failed|error)", output):
        errors = re.findall(r"^(?:E  +|Exit: |!+ )(.+)$", output, re.M)
        raise Failed(f"{', '.join(counts[-2:]) or 'not begun'}: {errors[0] if errors else last(output)}")
    return ", ".join(counts)


for _name, _task in EXAMPLES.items():
    add(
        Case(
            f"finsy-example-{_name}",
            CLIENT,
            f"examples/tests/test_{_name}.py: {_task}",
            partial(run, name=_name),
            folder="finsy",
            seconds=240,
            known={"bmv2": SEVERAL} | KNOWN.get(_name, {}),
        )
    )
