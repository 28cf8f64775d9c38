# SPDX-License-Identifier: Apache-2.0
"""The Rust programs, and everything that pip installs."""

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("apswitch", "hosts", "batcp")
PACKED = {"apswitch": "apswitch", "hosts": "access_point_hosts", "batcp": "access_point_batcp"}  # program -> its wheel
TARGET = ROOT / "out/dist-target"
CONFORMANCE_USES = ("__init__", "bmv2", "requirements", "targets", "links/__init__", "links/veth", "namespaces/__init__", "namespaces/contain")
"""Modules of topologies/ that send frames and start servers: they need nothing but Python's own library."""
CONFORMANCE = "p4runtime_conformance"


def rust_environment() -> dict[str, str]:
    """Environment of cargo for a program without paths of this machine: neither rustc's, nor clang's in BPF objects."""
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    places = {home: "/cargo", str(ROOT): "/access-point"}
    build = {
        "RUSTFLAGS": " ".join(f"--remap-path-prefix={path}={name}" for path, name in places.items()),
        # libbpf-cargo has clang name sources by their whole paths. clang adds what stands here, and says nothing of it (#).
        "CCC_OVERRIDE_OPTIONS": " ".join(["#", *(f"+-ffile-prefix-map={path}={name}" for path, name in places.items())]),
        "CARGO_PROFILE_RELEASE_STRIP": "true",
        "CARGO_TARGET_DIR": str(TARGET),
    }
    return os.environ | build


def programs(out: Path) -> dict[str, Path]:
    """The wheels of the Rust programs into a folder; program -> its file, beside them."""
    made = {}
    for name in PROGRAMS:
        words = ["-m", "maturin", "build", "--release", "--locked", "--auditwheel", "skip", "--compatibility", "linux"]
        progress = [str(ROOT / "tools/progress.py"), "cargo", name, "--", sys.executable, *words, "--out", str(out)]
        subprocess.run(progress, cwd=ROOT / "packaging" / name, env=rust_environment(), check=True)
        (packed,) = out.glob(f"{PACKED[name]}-*.whl")
        with zipfile.ZipFile(packed) as archive:
            (member,) = (entry for entry in archive.namelist() if entry.endswith(f".data/scripts/{name}"))
            made[name] = out / name
            made[name].write_bytes(archive.read(member))
            made[name].chmod(0o755)
    return made


def build(out: Path, version: str) -> None:
    """The other wheels, and the sdist."""
    with tempfile.TemporaryDirectory() as scratch:
        library = distribution(Path(scratch) / "library")
        wheel(library, out)
        # setuptools dates what is in an sdist with today.
        backend = "import setuptools.build_meta as backend, sys; print(backend.build_sdist(sys.argv[1]))"
        python(["-c", backend, Path(scratch) / "sdist"], library)
        (made,) = (Path(scratch) / "sdist").iterdir()
        repack(made, out / made.name)
        wheel(client(Path(scratch) / "client", version), out)
        wheel(conformance(Path(scratch) / "conformance", version), out)


def python(words: list[object], where: Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run([sys.executable, *map(str, words)], cwd=where, env=environment, stdout=subprocess.DEVNULL, check=True)


def wheel(sources: Path, out: Path) -> None:
    """setuptools writes beside its sources: they are a copy."""
    python(["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, "."], sources)


def copied(source: Path, to: Path, *names: str, without: tuple[str, ...] = ()) -> None:
    """A folder, or only some modules of it, without what is not the project's."""
    if names:
        to.mkdir(parents=True)
        for name in names:
            (to / name).parent.mkdir(exist_ok=True)
            shutil.copy(source / f"{name}.py", to / f"{name}.py")
    else:
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "tests", *without))


def distribution(to: Path) -> Path:
    """The sources of the Python distribution: symbolic links to rooms become folders. checks/ stays in the checkout."""
    copied(ROOT / "accesspoint", to / "accesspoint", without=("checks",))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, to)
    return to


def described(to: Path, name: str, version: str) -> None:
    """pyproject.toml, with the one version that all have, and the texts beside it."""
    text = (ROOT / "packaging" / name / "pyproject.toml").read_text()
    text = re.sub(r'^version = "0"$', f'version = "{version}"', text, flags=re.M)
    (to / "pyproject.toml").write_text(text)
    shutil.copy(ROOT / "packaging" / name / "README.md", to)
    shutil.copy(ROOT / "LICENSE", to)


def client(to: Path, version: str) -> Path:
    """The REST client's sources under its own name."""
    copied(ROOT / "controller/client", to / "access_point_client")
    (to / "access_point_client/py.typed").touch()
    described(to, "client", version)
    return to


def conformance(to: Path, version: str) -> Path:
    """The suite under an import name of its own, and in it its P4Runtime client and the modules of topologies/ that it uses.

    Its imports are renamed, so no file of it belongs to another distribution, too."""
    copied(ROOT / "checks/conformance", to / CONFORMANCE)
    for part in ("stf", "against"):  # they take this project's programs
        shutil.rmtree(to / CONFORMANCE / part)
    copied(ROOT / "checks/harness", to / CONFORMANCE / "harness", "__init__", "p4runtime")
    copied(ROOT / "topologies", to / CONFORMANCE / "topologies", *CONFORMANCE_USES)
    for path in (to / CONFORMANCE).rglob("*.py"):
        text = re.sub(r"\baccesspoint\.checks\.conformance\b", CONFORMANCE, path.read_text())
        text = re.sub(r"\baccesspoint\.checks import conformance\b", f"import {CONFORMANCE}", text)
        text = re.sub(r"\baccesspoint\.(?:checks\.)?(harness|topologies)\b", rf"{CONFORMANCE}.\1", text)
        path.write_text(text)
    described(to, "conformance", version)
    return to


def repack(made: Path, to: Path) -> None:
    """A .tar.gz with every time, owner and order as in any other run."""
    date = int(os.environ["SOURCE_DATE_EPOCH"])
    plain = io.BytesIO()
    with tarfile.open(made) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda entry: entry.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = date, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with to.open("wb") as file, gzip.GzipFile("", "wb", mtime=date, fileobj=file) as packed:
        packed.write(plain.getvalue())
