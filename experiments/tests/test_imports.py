# SPDX-License-Identifier: Apache-2.0
"""Modules of experiments/ stand in layers: none imports one that imports it, be it late, or for types only."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from accesspoint import experiments

ROOM = Path(__file__).parents[1]


def modules() -> dict[str, str]:
    """Name -> source, without the tests."""
    found = {}
    for path in ROOM.rglob("*.py"):
        words = ("accesspoint", *path.relative_to(ROOM.parent).with_suffix("").parts)
        if "tests" not in words:
            found[".".join(words).removesuffix(".__init__")] = path.read_text()
    return found


def imported(source: str) -> Iterator[str]:
    """Names that every import names, wherever in a module it stands, and the module that they are in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


def order(sources: Mapping[str, str]) -> list[str]:
    """The modules, each after those that it imports. Raises CycleError."""
    needs = {name: (set(imported(source)) & sources.keys()) - {name} for name, source in sources.items()}
    return [*TopologicalSorter(needs).static_order()]


def test_no_module_needs_one_that_needs_it() -> None:
    try:
        ordered = order(modules())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")
    names = ("measure.samples", "measure.run_data", "lab.stage")
    assert [name for name in ordered if name.endswith(names)] == [f"accesspoint.experiments.{name}" for name in names]


def layers() -> dict[str, int]:
    """Module or folder -> its layer, as the package says."""
    lines = [line.partition(": ")[0].split(", ") for line in (experiments.__doc__ or "").split("\n\n")[2].splitlines()]
    return {f"accesspoint.experiments.{name}": number for number, names in enumerate(lines) for name in names}


def test_every_module_imports_from_its_own_layer_and_those_above() -> None:
    of, sources = layers(), modules()
    placed = {name: of.get(".".join(name.split(".")[:3])) for name in sources if name != "accesspoint.experiments"}
    assert None not in placed.values(), [name for name, layer in placed.items() if layer is None]
    assert len(of) == len({".".join(name.split(".")[:3]) for name in placed}), "a module that is gone"
    wrong = [
        f"{name} imports {other}"
        for name, layer in placed.items()
        for other in set(imported(sources[name])) & placed.keys()
        if (placed[other] or 0) > (layer or 0)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "back",
    [
        "import x.a",
        "from x import a",
        "from x.a import b",
        "def late():\n    from x import a",
        "if TYPE_CHECKING:\n    import x.a",
    ],
)
def test_a_circle_is_found_wherever_its_import_stands(back: str) -> None:
    sources = {"x.a": "from x.b import thing", "x.b": "import x.c", "x.c": back}
    with pytest.raises(CycleError):
        order(sources)
    assert order(sources | {"x.c": "import os"}) == ["x.c", "x.b", "x.a"]


def test_declared_experiments_leave_the_choice_of_mininet_to_the_lab() -> None:
    """Labs on radios need another one than wired labs; what is imported first stays."""
    program = (
        "import sys\nfrom accesspoint.experiments.execution import worker\n"
        "from accesspoint.experiments.runs import registry\nregistry.experiments()\nprint(*sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOM.parent)
    assert [name for name in said.stdout.split() if name.startswith("mininet.")] == []
