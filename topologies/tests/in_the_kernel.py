# SPDX-License-Identifier: Apache-2.0
"""Program of test_wifi.py in the user-mode kernel: writes to two places, then ends with code 7 or sleeps."""

import sys
import time
from pathlib import Path

from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.wifi import requirements

Path(sys.argv[1], "file").write_text("kept")
if sys.argv[2] == "sleep":
    time.sleep(600)
Path(sys.argv[2]).write_text("lost")
print(f"radios {kernel.inside() and requirements.has_radios()}, terminal {sys.stdout.isatty()}")
sys.exit(7)
