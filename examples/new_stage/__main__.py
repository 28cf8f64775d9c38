# SPDX-License-Identifier: Apache-2.0
"""A change of the P4 program: a new stage, compiled with the p4c on PATH, loaded and tested.

.venv/bin/python -m examples.new_stage
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from accesspoint import AccessPointTopo, Mininet

HERE = Path(__file__).parent
BEFORE = '#include "stages/prune.p4"'
NEXT = "        Learn.apply(hdr, meta);\n"  # the stage that it goes before
STAGE = "        Quiet.apply(hdr, meta);\n        if (meta.drop == 1) { mark_to_drop(standard_metadata); return; }\n"

with tempfile.TemporaryDirectory() as directory:
    program = Path(directory)
    sources = shutil.copytree(HERE.parent.parent / "p4src", program / "p4src")
    shutil.copy(HERE / "quiet.p4", sources / "stages")
    source = sources / "v1model/ap.p4"
    top = source.read_text().replace(BEFORE, f'#include "stages/quiet.p4"\n{BEFORE}')
    source.write_text(top.replace(NEXT, STAGE + NEXT))
    compile_ = ["p4c-bm2-ss", "--std", "p4-16", "-I", "p4src", "-o", "ap.json", "--p4runtime-files", "ap.p4info.txtpb"]
    subprocess.run([*compile_, source], cwd=program, check=True)
    net = Mininet(AccessPointTopo(switch={"program": program}), controller=None)
    net.start()
    try:
        for dscp in (0, 42):
            print(f"DSCP {dscp}:", net["sta1"].cmd(f"ping -c 3 -i 0.2 -W 1 -Q {dscp << 2} {net['server'].IP()}"))
    finally:
        net.stop()
