# SPDX-License-Identifier: Apache-2.0
"""Debian packages: `apswitch`, `access-point-hosts`, and `access-point` with the controller, apctl and both units.

Each is for the release of Debian that it is made on: programs need its C library, the controller its Python. What the
controller needs of PyPI is in the package, since Debian has other versions: nothing is fetched when it is installed.
"""

import gzip
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.dist.wheels import copied

ROOT = Path(__file__).resolve().parents[2]
HOME = Path("opt/access-point")  # where controller/*.service and `apctl init` have the project
MAINTAINER = "The programmable access point's authors <noreply@localhost>"
CONTROLLER = (
    "finsy", "grpcio", "fastapi", "uvicorn", "httptools", "sqlalchemy", "alembic", "psycopg[binary]", "pydantic", "prometheus-client", "typer",
    "httpx", "numpy", "nats-py", "cryptography",
)  # fmt: skip
"""Requirements of controller/, as requirements.txt pins them."""


def build(out: Path, version: str, programs: Mapping[str, Path]) -> None:
    """Every package. programs: program -> its file."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, fill in (("apswitch", switch), ("access-point-hosts", hosts), ("access-point", controller)):
            there = Path(scratch) / name
            fill(there, version, programs)
            finish(there, name, version, out)


def switch(to: Path, version: str, programs: Mapping[str, Path]) -> None:
    """The switch, also under BMv2's names, its manual pages, and what shells complete."""
    program = put(to / "usr/bin/apswitch", programs["apswitch"].read_bytes(), 0o755)
    for name in ("simple_switch_grpc", "simple_switch"):
        link(to / "usr/bin" / name, "apswitch")
    for page in ("", "explain", "trace", "completions", "man"):
        name = f"apswitch-{page}" if page else "apswitch"
        put_packed(to / f"usr/share/man/man1/{name}.1.gz", said(program, "man", *([page] if page else [])))
    for shell, place in {
        "bash": "bash-completion/completions/apswitch",
        "zsh": "zsh/vendor-completions/_apswitch",
        "fish": "fish/vendor_completions.d/apswitch.fish",
    }.items():
        put(to / "usr/share" / place, said(program, "completions", shell))


def hosts(to: Path, version: str, programs: Mapping[str, Path]) -> None:
    """The end hosts' program, and BATCP by itself."""
    program = put(to / "usr/bin/hosts", programs["hosts"].read_bytes(), 0o755)
    put_packed(to / "usr/share/man/man1/hosts.1.gz", manual(program, "hosts", version, 1))
    for command in ("cc", "cwnd", "batcp", "probe-buffer", "sessions"):
        page = manual(program, f"hosts-{command}", version, 1, command)
        put_packed(to / f"usr/share/man/man1/hosts-{command}.1.gz", page)
    alone = put(to / "usr/bin/batcp", programs["batcp"].read_bytes(), 0o755)
    put_packed(to / "usr/share/man/man1/batcp.1.gz", manual(alone, "batcp", version, 1))


def controller(to: Path, version: str, programs: Mapping[str, Path]) -> None:
    """The controller with all that it needs of PyPI, apctl, and the units of controller and switch."""
    home = to / HOME
    copied(ROOT / "controller", home / "controller")
    for name in ("__init__.py", "own_file.py"):
        put(home / "accesspoint" / name, (ROOT / "accesspoint" / name).read_bytes())
    link(home / "accesspoint/controller", "../controller")
    for name in ("ap.json", "ap.p4info.txtpb"):
        put(home / "p4src/compiled" / name, (ROOT / "p4src/compiled" / name).read_bytes())
    put(home / "apctl", (ROOT / "apctl").read_bytes(), 0o755)
    link(to / "usr/bin/apctl", f"/{HOME}/apctl")
    link(home / "target/release/apswitch", "/usr/bin/apswitch")
    environment(home / ".venv")
    for unit in sorted((ROOT / "controller").glob("*.service")):
        put(to / "usr/lib/systemd/system" / unit.name, unit.read_bytes())
    put_packed(to / "usr/share/man/man8/apctl.8.gz", manual(home / "apctl", "apctl", version, 8, home=home))


def environment(to: Path) -> None:
    """A virtual environment of the system's Python with the controller's packages, and nothing of this machine's."""
    pinned = re.findall(r"^\S+==\S+$", (ROOT / "requirements.txt").read_text(), re.M)
    wanted = [pin for pin in pinned if pin.partition("==")[0] in CONTROLLER]
    number = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = to / f"lib/python{number}/site-packages"
    words = ["-q", "--disable-pip-version-check", "--no-compile", "--no-warn-conflicts", "--target", place, *wanted]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True)
    shutil.rmtree(place / "bin", ignore_errors=True)  # their commands name the Python of this machine
    for record in place.glob("*.dist-info/RECORD"):
        record.unlink()  # pip's: dpkg is who takes these files away
    put(to / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {number}\n")
    link(to / "bin/python3", f"/usr/bin/python{number}")
    link(to / "bin/python", "python3")


def finish(to: Path, name: str, version: str, out: Path) -> None:
    """Add the files that every package has, and make the package."""
    docs = to / "usr/share/doc" / name
    put(docs / "copyright", f"Files: *\nLicense: Apache-2.0\n\n{(ROOT / 'LICENSE').read_text()}")
    put_packed(docs / "changelog.gz", (ROOT / "CHANGELOG.md").read_text())
    release = codename()
    full = f"{version}-1~{release}"
    texts = ROOT / "packaging/debian" / name
    for script in sorted(texts.glob("p*")):
        put(to / "DEBIAN" / script.name, script.read_bytes(), 0o755)
    size = sum(path.lstat().st_size for path in to.rglob("*") if path.is_file() and not path.is_symlink()) // 1024
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    fields = {
        "@VERSION@": full,
        "@ARCHITECTURE@": architecture.stdout.strip(),
        "@MAINTAINER@": MAINTAINER,
        "@SIZE@": str(size),
        "@PYTHON@": f"{sys.version_info.major}.{sys.version_info.minor}",
        "@NEXT_PYTHON@": f"{sys.version_info.major}.{sys.version_info.minor + 1}",
        "@LIBC@": platform.libc_ver()[1],
    }
    control = (texts / "control").read_text()
    for field, value in fields.items():
        control = control.replace(field, value)
    put(to / "DEBIAN/control", control)
    for path in to.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    file = out / f"{name}_{full}_{fields['@ARCHITECTURE@']}.deb"
    packed = ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", str(to), str(file)]
    subprocess.run(packed, stdout=subprocess.DEVNULL, check=True)


def codename() -> str:
    """Codename of this machine's release of Debian, as `deb12`."""
    text = Path("/etc/os-release").read_text()
    found = {key: value.strip('"') for key, _, value in (line.partition("=") for line in text.splitlines())}
    return f"{'deb' if found.get('ID') == 'debian' else found.get('ID', 'linux')}{found.get('VERSION_ID', '')}"


def manual(program: Path, name: str, version: str, section: int, *command: str, home: Path | None = None) -> str:
    """A page for man(1) of what a program says of itself."""
    call = [str(program), *command]
    words = ["--no-info", f"--section={section}", f"--version-string={version}", f"--name={described(call)}"]
    with tempfile.TemporaryDirectory() as scratch:
        wrapper = Path(scratch) / name
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(call)} "$@"\n')
        wrapper.chmod(0o755)
        return said("help2man", *words, wrapper)


def described(call: list[str]) -> str:
    """The first sentence of a program's help that is not its usage."""
    lines = [line.strip() for line in said(*call, "--help").splitlines()]
    return next(line for line in lines if line and not line.startswith("Usage")).rstrip(".")


def said(*words: object) -> str:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True).stdout


def put(path: Path, content: str | bytes, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def put_packed(path: Path, content: str) -> None:
    put(path, gzip.compress(content.encode(), mtime=0))


def link(path: Path, to: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)
