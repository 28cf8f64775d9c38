# SPDX-License-Identifier: Apache-2.0
"""Where the library's code is: in a checkout beside this package, in an installed distribution below it.

The code imports its rooms by their own names (`topologies`, `controller`, `experiments`). They are found here, after
all else and for these names only, so nothing else becomes importable; a module of that name that is somebody else's is
named.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOMS = ("controller", "experiments", "topologies")
_HERE = Path(__file__).resolve().parent
PLACE = _HERE if (_HERE / "topologies").is_dir() else _HERE.parent


class _Rooms(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(PLACE)]) if path is None and name in ROOMS else None


def make_importable() -> None:
    """Makes the rooms importable. Raises ImportError when modules of the same names are in the way."""
    if not any(isinstance(finder, _Rooms) for finder in sys.meta_path):
        sys.meta_path.append(_Rooms())
    for room in ROOMS:
        found = importlib.util.find_spec(room)
        if not found or not found.origin or Path(found.origin).resolve() != PLACE / room / "__init__.py":
            raise ImportError(
                f"a module '{room}' that is not the access point's is in the way "
                f"({found.origin if found else 'none found'}): give yours another name"
            )
