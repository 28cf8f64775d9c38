# SPDX-License-Identifier: Apache-2.0
"""The Python distribution: one import name, everything in it, and it works where there is no checkout."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools.dist import debian, wheels

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
ROOMS = ("controller", "experiments", "topologies")
APSWITCH = Path(os.environ.get("APSWITCH", ROOT / "target/release/apswitch"))
IN_A_LAB = """
import accesspoint
from accesspoint import AccessPoint, AccessPointTopo, Client, Mininet
net = Mininet(AccessPointTopo(), controller=None)
net.start()
try:
    print(accesspoint.__file__, isinstance(net["ap1"], AccessPoint), net.pingAll())
    with Client(net["ap1"].rest_url, net["ap1"].rest_token) as client:
        print(client.get_access_point("ap1")["state"])
finally:
    net.stop()
"""


def test_every_package_is_named() -> None:
    found = {"accesspoint", "accesspoint.p4src"}
    for room in ROOMS:
        inits = [path.parent for path in (ROOT / room).rglob("__init__.py") if "tests" not in path.parts]
        found |= {".".join(["accesspoint", *path.relative_to(ROOT).parts]) for path in inits}
    assert set(SETUPTOOLS["packages"]) == found, "name it in pyproject.toml"


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
    found = set()
    for path in (path for room in rooms for path in (ROOT / room).rglob("*.py") if "tests" not in path.parts):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
    return found - {"accesspoint"} - set(sys.stdlib_module_names)


BESIDE = {
    "mininet", "mn_wifi", "bcc",  # the system's
    "google", "starlette", "cryptography",  # finsy's, fastapi's, aioquic's own
    "typing_extensions", "pydantic_core",  # pydantic's own
}  # fmt: skip


@pytest.mark.parametrize(
    ("rooms", "wanted"),
    [
        (["accesspoint", *ROOMS], [*PROJECT["project"]["dependencies"], "distributed", "dask"]),
        (
            ["controller"],
            [*debian.CONTROLLER, "matplotlib"],
        ),  # a picture of `law try`, which names it where it is missing
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


@pytest.fixture(params=["checkout", "wheel"])
def installed(request: pytest.FixtureRequest) -> Path:
    """A folder that holds the package `accesspoint`."""
    return ROOT if request.param == "checkout" else request.getfixturevalue("wheel")


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_accesspoint_beside_modules_of_the_same_names_runs_a_lab(installed: Path, tmp_path: Path) -> None:
    """Neither this process nor the controller that the lab starts imports any of them."""
    for room in ("controller", "topologies", "checks"):
        (tmp_path / f"{room}.py").write_text("raise SystemExit('not mine')\n")
    for room in ("experiments", "conformance"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise SystemExit('not mine')\n")
    (tmp_path / "script.py").write_text(IN_A_LAB)
    environment = {**os.environ, "PYTHONPATH": str(installed), "APSWITCH": str(APSWITCH)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(installed / "accesspoint/__init__.py"), "True", "0.0", "ready"]


def test_the_virtual_environment_knows_the_checkout_after_all_else(tmp_path: Path) -> None:
    """A script of any folder finds accesspoint, and its own modules first: `make setup` wrote a .pth file."""
    (tmp_path / "controller.py").write_text("name = 'mine'\n")
    for room in ("experiments", "tests", "tools", "hosts"):  # without __init__.py, as a namespace package
        (tmp_path / room).mkdir()
        (tmp_path / room / "own.py").write_text("name = 'mine'\n")
    (tmp_path / "script.py").write_text(
        "import accesspoint, controller\n"
        "import experiments.own, tests.own, tools.own, hosts.own\n"
        "print(accesspoint.__file__, controller.name)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    found, name = done.stdout.split()
    assert Path(found).resolve() == ROOT / "accesspoint/__init__.py" and name == "mine"


def experiments(folder: Path, installed: Path, *words: str) -> str:
    """Output of the command `experiments` in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "APSWITCH": str(APSWITCH), "COLUMNS": "200"}
    command = [sys.executable, "-m", "accesspoint.experiments", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with an experiment of the user's own."""
    shutil.copy(ROOT / "examples/own_experiment.py", tmp_path / "mine.py")
    return tmp_path


def test_experiment_of_ones_own_is_listed_from_any_folder(mine: Path, installed: Path) -> None:
    assert "beside-upload " in experiments(mine, installed, "list", "./mine.py")


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_experiment_of_ones_own_runs_from_any_folder(mine: Path, installed: Path) -> None:
    said = experiments(mine, installed, "run", "./mine.py", "--quick", "--out", "results")
    assert "beside-upload: 2 runs" in said and re.search(r"^2 of 2: beside-upload/", said, re.M)
    exported = experiments(mine, installed, "export", "./mine.py", "--quick", "--out", "results", "--to", "files")
    assert str(mine / "files/beside-upload.csv") in exported
