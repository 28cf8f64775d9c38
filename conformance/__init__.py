# SPDX-License-Identifier: Apache-2.0
"""A conformance suite for P4Runtime servers that run v1model programs: `python -m conformance --help`.

In a distribution of its own, what it uses of `topologies` lies below it; a `topologies` that is there goes first.
"""

import importlib.util
import sys
from pathlib import Path

_TOPOLOGIES = Path(__file__).resolve().parent / "topologies"


def _import_topologies() -> None:
    if importlib.util.find_spec("topologies") or not _TOPOLOGIES.is_dir():
        return
    spec = importlib.util.spec_from_file_location(
        "topologies", _TOPOLOGIES / "__init__.py", submodule_search_locations=[str(_TOPOLOGIES)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["topologies"] = module
    spec.loader.exec_module(module)


_import_topologies()
