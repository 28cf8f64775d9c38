# SPDX-License-Identifier: Apache-2.0
"""The Python distribution: one import name, everything in it, and it works where there is no checkout."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

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
    pinned = re.findall(r"^(\S+)==(\S+)$", (ROOT / "requirements.txt").read_text(), re.M)
    project = PROJECT["project"]
    for wanted in [*project["dependencies"], *project["optional-dependencies"]["campaign"]]:
        assert tuple(wanted.split(">=")) in pinned


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked. It is built of a copy: setuptools writes beside its sources."""
    there = tmp_path_factory.mktemp("distribution")
    for folder in SETUPTOOLS["package-dir"].values():
        shutil.copytree(ROOT / folder, there / folder, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, there)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    done = subprocess.run(build, cwd=there, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
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
