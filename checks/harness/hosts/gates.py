# SPDX-License-Identifier: Apache-2.0
"""A lab whose access point has another gate for each station, and `hosts probe-buffer` from the server to each of them.

`python -m accesspoint.checks.harness.hosts.gates DOWN BUFFER:BATCH... [-- OPTIONS of probe-buffer run]` prints a line
of JSON per gate.
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from accesspoint.topologies.features import PLAIN
from accesspoint.topologies.links.profiles import link_profile
from accesspoint.topologies.mininet.network import Lab
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import ROOT

HOSTS = ROOT / "target/release/hosts"


def main() -> int:
    words, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    down, *specs = words.split()
    gates = [tuple(map(int, spec.split(":"))) for spec in specs]
    # The port's own queue must hold more than the gate lets in.
    profile = replace(link_profile("testbed", down=down), down_limit=1000)
    features = replace(PLAIN, gate={str(i): {"buffer": q, "batch": b} for i, (q, b) in enumerate(gates, 1)})
    with tempfile.TemporaryDirectory() as directory:
        key = Path(directory) / "key"
        key.write_text("a key that both ends know\n")
        key.chmod(0o600)
        with Lab(profile, Path(directory) / "lab", stations=len(gates), features=features) as lab:
            for station in lab.stations:
                serve = [HOSTS, "probe-buffer", "serve", "--key-file", key]
                responder = station.popen(serve, stdout=subprocess.PIPE, text=True)
                assert responder.stdout.readline().startswith("listening on ")
                run = [HOSTS, "probe-buffer", "run", station.IP(), "--key-file", key, "--json", *options.split()]
                out, err, code = lab.server.pexec([str(word) for word in run])
                print(out or err, end="", flush=True)
                responder.terminate()
                if code:
                    return int(code)
    return 0


if __name__ == "__main__":
    sys.exit(contain.run(main))
