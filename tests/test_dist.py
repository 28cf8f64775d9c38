# SPDX-License-Identifier: Apache-2.0
"""Products of `make dist`: wheels that work alone, Debian packages that install and uninstall, an SBOM, the same bytes
twice."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest

from tools.dist import __main__ as command
from tools.dist import debian, sbom, wheels

ROOT = Path(__file__).parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BUILT = {name: ROOT / "target/release" / name for name in wheels.PROGRAMS}
EPOCH = "1700000000"
needs_programs = pytest.mark.skipif(
    not all(path.exists() for path in BUILT.values()), reason="a program is not built: make switch hosts"
)


@pytest.fixture(autouse=True)
def dated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def unpacked(sources: Path, to: Path) -> Path:
    """A wheel, built and unpacked as pip would, without what it needs."""
    wheels.wheel(sources, to / "wheel")
    (made,) = (to / "wheel").glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(to / "site")
    return to / "site"


def said(*words: object, at: Path, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=at,
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_client_is_a_wheel_of_its_own(tmp_path: Path) -> None:
    site = unpacked(wheels.client(tmp_path / "sources", VERSION), tmp_path)
    assert f"Version: {VERSION}" in (site / f"access_point_client-{VERSION}.dist-info/METADATA").read_text()
    script = (
        "import access_point_client as c, sys; "
        "print(c.__file__, 'controller' in sys.modules, c.Client.get_flows.__name__)"
    )
    assert said("-c", script, at=tmp_path, path=site).split() == [
        f"{site}/access_point_client/__init__.py", "False", "get_flows",
    ]  # fmt: skip


def test_conformance_is_a_wheel_of_its_own(tmp_path: Path) -> None:
    site = unpacked(wheels.conformance(tmp_path / "sources", VERSION), tmp_path)
    listed = said("-m", "p4runtime_conformance", "--list", at=tmp_path, path=site)
    assert listed == said("-m", "accesspoint.checks.conformance", "--list", at=ROOT, path=ROOT)
    script = (
        "import sys; from p4runtime_conformance import topologies; "
        "print(topologies.__file__, 'accesspoint' in sys.modules)"
    )
    assert said("-c", script, at=tmp_path, path=site).split() == [
        f"{site}/p4runtime_conformance/topologies/__init__.py", "False",
    ]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@needs_programs
def test_conformance_asks_a_server_without_a_checkout(tmp_path: Path) -> None:
    site = unpacked(wheels.conformance(tmp_path / "sources", VERSION), tmp_path)
    environment = os.environ | {"PYTHONPATH": str(site), "APSWITCH": str(BUILT["apswitch"])}
    words = [sys.executable, "-m", "p4runtime_conformance", "--target=apswitch", "--section=9.1.1", "--wait=60"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "pass" in done.stdout, done.stdout + done.stderr


def test_an_sdist_is_packed_the_same_way_whenever_it_is(tmp_path: Path) -> None:
    for run in ("one", "two"):
        with tarfile.open(tmp_path / f"{run}.tar.gz", "w:gz") as archive:
            for name in ("b", "a") if run == "two" else ("a", "b"):
                (tmp_path / name).write_text(name)
                os.utime(tmp_path / name, (len(run), 10 ** len(name)))
                archive.add(tmp_path / name, name)
        (tmp_path / run).mkdir()
        wheels.repack(tmp_path / f"{run}.tar.gz", tmp_path / run / "x.tar.gz")
    assert command.differing(tmp_path / "one", tmp_path / "two") == []
    (tmp_path / "two/y").touch()
    assert command.differing(tmp_path / "one", tmp_path / "two") == ["y"]


needs_cargo = pytest.mark.skipif(not shutil.which("cargo"), reason="cargo is missing; install Rust 1.95 or newer")


@needs_cargo
def test_a_program_is_the_same_whatever_folder_it_is_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one in the switch's place, through all that makes its wheel."""
    monkeypatch.setattr(wheels, "PROGRAMS", ("apswitch",))
    for name in ("one", "elsewhere"):
        place = tmp_path / name
        shutil.copytree(ROOT / "packaging/apswitch", place / "packaging/apswitch")
        (place / "tools").mkdir()
        shutil.copy(ROOT / "tools/progress.py", place / "tools")
        (place / "switch/cli/src/bin").mkdir(parents=True)
        manifest = '[package]\nname = "apswitch"\nversion = "1.2.3"\nedition = "2024"\n'
        (place / "switch/cli/Cargo.toml").write_text(manifest)
        (place / "switch/cli/src/main.rs").write_text('fn main() { println!("here: {}", file!()); }\n')
        for other in ("simple_switch_grpc", "simple_switch"):
            (place / f"switch/cli/src/bin/{other}.rs").write_text("fn main() {}\n")
        subprocess.run(["cargo", "generate-lockfile", "--offline"], cwd=place / "switch/cli", check=True)
        monkeypatch.setattr(wheels, "ROOT", place)
        monkeypatch.setattr(wheels, "TARGET", place / "target")
        (place / "out").mkdir()
        program = wheels.programs(place / "out")["apswitch"]
        assert subprocess.run([program], capture_output=True, text=True).stdout == "here: src/main.rs\n"
        assert str(place).encode() not in program.read_bytes()
    assert command.differing(tmp_path / "one/out", tmp_path / "elsewhere/out") == []
    assert (tmp_path / "one/out/apswitch-1.2.3-py3-none-linux_x86_64.whl").exists()


@pytest.mark.skipif(not shutil.which("clang"), reason="clang is missing; tools/install.sh bpf")
def test_a_bpf_object_is_the_same_whatever_folder_it_is_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source is named by its whole path, as libbpf-cargo does; line numbers (BTF) name it in the program."""
    made = []
    for name in ("one", "elsewhere"):
        monkeypatch.setattr(wheels, "ROOT", tmp_path / name)
        source, result = tmp_path / name / "hosts/bpf/one.bpf.c", tmp_path / name / "one.o"
        source.parent.mkdir(parents=True)
        source.write_text("int twice(int number) { return 2 * number; }\n")
        words: list[str | Path] = ["clang", "-g", "-O2", "-target", "bpf", "-c", source, "-o", result]
        subprocess.run(words, cwd=source.parent, env=wheels.rust_environment(), check=True)
        made.append(result.read_bytes())
    assert made[0] == made[1] and b"/access-point/hosts/bpf/one.bpf.c" in made[0]


@needs_cargo
def test_the_bill_of_materials_names_every_part(tmp_path: Path) -> None:
    sbom.write(tmp_path / "sbom.json", VERSION)
    document = json.loads((tmp_path / "sbom.json").read_text())
    found = {unquote(part["purl"]) for part in document["components"]}
    locked = {
        f"pkg:cargo/{package['name']}@{package['version']}"
        for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    crates = {url for url in found if url.startswith("pkg:cargo/")}
    assert crates < locked and f"pkg:cargo/apswitch@{VERSION}" in crates
    assert not [url for url in crates if "criterion" in url or "proptest" in url], "tests' crates are in no program"
    assert {url.rpartition("@")[0] for url in found - crates} >= {"pkg:pypi/finsy", "pkg:pypi/psycopg-binary"}
    assert all(part.get("licenses") for part in document["components"] if unquote(part["purl"]) in crates)


INSTALLED = """
set -eu
there() { find /etc /opt /usr /var/lib -path /var/lib/dpkg -prune -o -path /var/lib/systemd -prune -o -print | sort; }
there > /before
dpkg -i --force-depends /packages/*.deb >/dev/null 2>&1
for name in apswitch simple_switch_grpc simple_switch hosts batcp; do $name --version; done; apctl --help | head -1
cd /usr/share/man
for page in man1/apswitch.1 man1/apswitch-explain.1 man1/apswitch-trace.1 \\
    man1/hosts.1 man1/hosts-batcp.1 man1/batcp.1 man8/apctl.8; do
    gzip -dc $page.gz | grep -c '^.SH'
done
cd /opt/access-point && .venv/bin/python -c 'import accesspoint.controller.app, sys; print(sys.prefix)'
! command -v systemd-analyze >/dev/null || systemd-analyze verify /usr/lib/systemd/system/access-point-*.service 2>&1
apctl init --radio radio0 --uplink uplink0 --down 14mbit --up 1mbit --root /image
ls /image/etc/systemd/system
rm -r /image
dpkg --purge access-point apswitch access-point-hosts >/dev/null 2>&1
there > /after
diff /before /after || true
"""


def test_upgraded_debian_package_restarts_the_services_that_run(tmp_path: Path) -> None:
    script = (ROOT / "packaging/debian/access-point/postinst").read_text()
    systemd, systemctl = tmp_path / "systemd", tmp_path / "systemctl"
    systemd.mkdir()
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n[ "$1" = daemon-reload ]\n')
    systemctl.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = script.replace("/run/systemd/system", str(systemd))
    subprocess.run(["sh", "-c", script, "postinst", "configure", "0.2.0"], env=environment, check=True)
    units = "access-point-switch access-point-controller access-point-agent access-point-replica"
    assert (tmp_path / "said").read_text().splitlines() == ["daemon-reload", f"try-restart {units}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root")
@pytest.mark.skipif(not shutil.which("help2man"), reason="help2man is missing; tools/install.sh packages")
@pytest.mark.skipif(not debian.codename().startswith("deb"), reason="this is not Debian")
@needs_programs
@pytest.mark.timeout(600)
def test_packages_are_installed_and_purged_without_a_trace(tmp_path: Path) -> None:
    """In a copy of this machine's own system, whose changes are in memory and go with it."""
    packages = tmp_path / "packages"
    packages.mkdir()
    debian.build(packages, VERSION, BUILT)
    inside = f"""
    set -eu
    mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
    mkdir /mnt/root/packages && cp {packages}/*.deb /mnt/root/packages
    mount -t proc proc /mnt/root/proc
    exec chroot /mnt/root env -u APSWITCH PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$SCRIPT"
    """
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inside],
        env=os.environ | {"SCRIPT": INSTALLED}, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    names = [f"{name} {VERSION}" for name in ("apswitch", "apswitch", "apswitch", "hosts", "batcp")]
    assert lines[:6] == [*names, "Usage: apctl [OPTIONS] COMMAND [ARGS]..."]
    assert all(int(number) >= 2 for number in lines[6:13]), "every manual page has sections"
    assert lines[13] == "/opt/access-point/.venv"
    assert {"access-point-controller.service", "access-point-switch.service"} <= set(lines)
    assert not [line for line in lines if line.startswith((">", "<"))], "something is left, or missing"
