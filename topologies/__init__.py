# SPDX-License-Identifier: Apache-2.0
"""Stations, an access point, a server and link profiles, in the Mininet API.

Mininet comes from the distribution (`apt install mininet`: the Python package and its helper `mnexec`), whose Python
packages a virtual environment does not see. This is the one place that makes `mininet` importable, and nothing else
of the distribution's.
"""

import importlib.util
import sys
from pathlib import Path

_DISTRIBUTION = Path("/usr/lib/python3/dist-packages/mininet")


def _import_mininet() -> None:
    if importlib.util.find_spec("mininet") or not (_DISTRIBUTION / "__init__.py").is_file():
        return  # missing: `requirements.check` says so, with the mend
    spec = importlib.util.spec_from_file_location(
        "mininet", _DISTRIBUTION / "__init__.py", submodule_search_locations=[str(_DISTRIBUTION)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = module
    spec.loader.exec_module(module)


_import_mininet()
