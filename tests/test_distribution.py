# SPDX-License-Identifier: Apache-2.0
"""The Python distribution: one import name, everything in it, and it works where there is no checkout."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools.dist import debian, wheels

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
APSWITCH = Path(os.environ.get("APSWITCH", ROOT / "switch/target/release/apswitch"))
IN_A_LAB = """
import accesspoint
from accesspoint import AccessPointTopo, Client, Mininet
net = Mininet(AccessPointTopo(), controller=None)
net.start()
try:
    print(accesspoint.__file__, net.pingAll())
    with Client(net["ap1"].rest_url, net["ap1"].rest_token) as client:
        print(client.get_access_point("ap1")["state"])
finally:
    net.stop()
"""


def test_every_package_is_named() -> None:
    named = set(SETUPTOOLS["packages"])
    for name, folder in SETUPTOOLS["package-dir"].items():
        inits = [path.parent for path in (ROOT / folder).rglob("__init__.py") if "tests" not in path.parts]
        found = {".".join([name, *path.relative_to(ROOT / folder).parts]) for path in inits}
        assert found <= named, "name it in pyproject.toml"
        named -= found
    assert named == {"accesspoint.p4src"}


def test_what_it_needs_is_what_is_tested() -> None:
    pinned = [
        pin
        for file in ("requirements.txt", "requirements-dev.txt")
        for pin in re.findall(r"^(\S+)==(\S+)$", (ROOT / file).read_text(), re.M)
    ]
    project = PROJECT["project"]
    for wanted in [*project["dependencies"], *project["optional-dependencies"]["campaign"]]:
        assert tuple(wanted.split(">=")) in pinned


def imported(*rooms: str) -> set[str]:
    """The modules of others that the code of rooms imports, by their first names."""
    own = {"accesspoint", "controller", "experiments", "topologies"}
    found = set()
    for path in (path for room in rooms for path in (ROOT / room).rglob("*.py") if "tests" not in path.parts):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
    return found - own - set(sys.stdlib_module_names)


BESIDE = {
    "mininet", "mn_wifi", "bcc",  # the system's
    "google", "starlette", "typing_extensions", "cryptography",  # finsy's, fastapi's, pydantic's, aioquic's own
    "bench",  # measures the controller, in a checkout
}  # fmt: skip


@pytest.mark.parametrize(
    ("rooms", "wanted"),
    [
        (SETUPTOOLS["package-dir"].values(), [*PROJECT["project"]["dependencies"], "distributed", "dask"]),
        (["controller"], debian.CONTROLLER),
    ],
    ids=["distribution", "Debian package"],
)
def test_what_is_imported_is_asked_for(rooms: list[str], wanted: list[str]) -> None:
    names = {
        re.split(r"[>\[]", name)[0].replace("-", "_").replace("grpcio", "grpc").replace("nats_py", "nats")
        for name in wanted
    }
    assert imported(*rooms) - BESIDE <= names


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked."""
    there = tmp_path_factory.mktemp("distribution")
    wheels.wheel(wheels.distribution(there / "sources"), there / "dist")
    (made,) = (there / "dist").glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(there / "unpacked")
    return there / "unpacked"


def test_it_has_one_import_name(wheel: Path) -> None:
    assert sorted(path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")) == ["accesspoint"]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_it_works_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(wheel), "APSWITCH": str(APSWITCH)}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_LAB], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(wheel / "accesspoint/__init__.py"), "0.0", "ready"]


def test_a_module_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "controller.py").touch()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", "import accesspoint"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1].startswith("ImportError: a module 'controller' that is not the access point's")
