# SPDX-License-Identifier: Apache-2.0
"""Python files of the user's own, which are no part of the package: experiments, and laws of feedback."""

import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType


def load(file: Path) -> ModuleType | None:
    """Return the module that a file makes; None: it is no Python file. Raises whatever its code raises."""
    name = f"accesspoint_own_{zlib.crc32(bytes(file)):08x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
