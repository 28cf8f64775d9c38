# SPDX-License-Identifier: Apache-2.0
"""An access point on this machine: configuration and units of its switch and of its controller or its agent, written,
started, and removed again without a trace. A fleet's agents and replicas: `fleet`.

A list below `root` has the files that were written, and the former settings of the interfaces.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .doctor import OFFLOADS, Finding, alone, interfaces, is_up, offloads, present
from .settings import UsageError

HOME = Path(__file__).resolve().parents[2]
"""The project, as it is installed."""
NAMED = "/opt/access-point"
"""Path of the project in the units of the checkout."""
SWITCH, CONTROLLER, AGENT, REPLICA = (f"access-point-{part}" for part in ("switch", "controller", "agent", "replica"))
UNITS = (SWITCH, CONTROLLER, AGENT, REPLICA)
"""All units; a machine has some of them."""
MANIFEST = "etc/access-point/installed.json"
CONFIG = "etc/access-point/access-point.json"
KEYS = "etc/access-point/keys"
"""The superuser's alone: systemd hands a service what it has to know."""
KEY_FILES = ("ca.pem", "enrol.creds", "account.seed", "service.creds", "rest.pem", "rest.key", "pgpass")
STATE, PRIVATE_STATE = "var/lib/access-point", "var/lib/private/access-point"
"""With DynamicUser the first is a link to the second."""
TOKEN = f"{STATE}/controller.token"
URL = "http://127.0.0.1:8080"
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""Folders that are hidden from units (systemd.exec(5), ProtectHome and PrivateTmp)."""
RADIO, UPLINK = 1, 2
AUTO = "auto"
LIMITS = {RADIO: 100, UPLINK: 1000}
"""Packets that a port's queues hold together: the lab's."""
NETWORK_MANAGER = "etc/NetworkManager/conf.d/90-access-point.conf"
WRITTEN = {
    CONFIG,
    NETWORK_MANAGER,
    *(f"etc/default/{unit}" for unit in UNITS),
    *(f"etc/systemd/system/{unit}.service" for unit in UNITS),
    *(f"{KEYS}/{name}" for name in KEY_FILES),
}
"""All files that are ever written, in addition to the list."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
"""Name of an interface that a unit's command can have; the kernel accepts others, too."""
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


@dataclass(frozen=True)
class Port:
    """An interface of this machine. rate: what its link carries from here (bit/s); None: not known."""

    number: int
    name: str
    rate: int | None

    @property
    def link(self) -> str:
        """Option `--link` of apswitch; empty without a known rate that would hold packets back here."""
        return f"--link {self.number}:rate={self.rate}bit,limit={LIMITS[self.number]}" if self.rate else ""

    def as_config(self) -> dict[str, Any]:
        """Return the port as the controller's configuration has it. Stations roam to a radio, and to one that a cable
        leads to."""
        role = {"role": "station", "roaming": True} if self.number == RADIO else {"role": "uplink"}
        return {
            "port": self.number, **role, "capacity_bps": self.rate or AUTO, "queue_limit": LIMITS[self.number],
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Installation of a machine: its units, the files (path below the root -> text), the interfaces that they use."""

    units: tuple[str, ...]
    files: dict[str, str]
    ports: tuple[Port, ...] = ()


def command() -> str:
    """Return the name that calls apctl in a shell of this machine."""
    return "apctl" if shutil.which("apctl") else str(HOME / "apctl")


def parse_rate(text: str) -> int | None:
    """`14mbit` -> 14000000 (bit/s); `auto` -> None. Raises UsageError."""
    if text == AUTO:
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(bit|kbit|mbit|gbit)", text.strip().lower())
    rate = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 8_000 <= rate <= 10**10:
        raise UsageError(f"rate {text}: give 8kbit to 10gbit, e.g. 14mbit, or auto")
    return rate


def problems(plan: Plan, root: Path, here: bool, start: bool) -> Iterator[Finding]:
    """Find problems of a plan that the units themselves would not fix. here: the interfaces are this machine's, and not
    those of a machine that an image is made for. start: systemd is to start the units at once."""
    ports = plan.ports
    if len({port.name for port in ports}) < len(ports):
        yield Finding("error", f"{ports[0].name} cannot be both radio and uplink", "name two interfaces")
    for port in ports:
        if not NAME.fullmatch(port.name):
            yield Finding("error", f"{port.name!r} has other characters than letters, digits, _ . and -", "rename it")
        elif here:
            # The kernel's settings do not know an interface by its altname.
            known = port.name in interfaces()
            missing = (
                []
                if known
                else [Finding("error", f"{port.name}: this machine has no such interface", "`ip link` lists them")]
            )
            yield from missing or alone(port.name)
    if ports and here and not shutil.which("ethtool"):
        yield Finding("error", "ethtool is missing, which the switch's unit needs", "`apt-get install ethtool`")
    yield from _unfit_home(switch=SWITCH in plan.units)
    if os.path.lexists(root / MANIFEST):
        yield Finding(
            "error", f"an access point is installed already: {root / MANIFEST}", "`apctl uninstall` removes it"
        )
    elif found := [path for path in (STATE, PRIVATE_STATE) if os.path.lexists(root / path)]:
        yield Finding("error", f"{root / found[0]} is an earlier controller's state", "move it away")
    if start and os.geteuid():
        yield Finding("error", "units and interfaces need root", "run it with sudo")
    if start and not Path("/run/systemd/system").exists():
        yield Finding("error", "systemd is not running", "--no-start only writes the files")
    if start and CONTROLLER in plan.units and _is_url_taken():
        yield Finding("error", f"something answers at {URL} already", "stop it: the controller needs that port")


def _unfit_home(switch: bool) -> Iterator[Finding]:
    """Check that units can run what is installed."""
    fix = f"`git clone {HOME} {NAMED} && make -C {NAMED} runtime`, then {NAMED}/apctl init"
    python = HOME / ".venv/bin/python"
    for what, place in (("the project", HOME), ("its Python", python.resolve())):
        if any(place.is_relative_to(hidden) for hidden in HIDDEN):
            yield Finding("error", f"systemd services cannot read {place} ({what})", fix)
    if re.search(r"[\s%$\\\"']", str(HOME)):
        yield Finding("error", f"{HOME} has characters with another meaning in a systemd unit", fix)
    if not (HOME / f"controller/{UNITS[0]}.service").exists():
        yield Finding("error", "this apctl comes without switch and units", f"use a checkout's: {NAMED}/apctl init")
    elif switch and not (HOME / "target/release/apswitch").exists():
        yield Finding("error", "the switch is not built", f"`make -C {HOME} runtime`")


def _is_url_taken() -> bool:
    """Return True when the address of the controller's page is in use."""
    host, _, port = URL.removeprefix("http://").partition(":")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, int(port)))
        except OSError:
            return True
    return False


def access_point(ports: Sequence[Port], controller: str = CONTROLLER, name: str = "ap1", options: str = "") -> Plan:
    """Plan a switch, and its controller or agent. controller: the unit of the latter; options: more options for it."""
    names = " ".join(port.name for port in ports)
    links = [f"-i {port.number}@{port.name}" for port in ports] + [port.link for port in ports if port.link]
    config = {"access_points": [{"name": name, "ports": [port.as_config() for port in ports]}]}
    made = {
        CONFIG: json.dumps(config, indent=2) + "\n",
        f"etc/default/{SWITCH}": f'PORTS="{names}"\nOPTIONS="{" ".join(links)}"\n',
        f"etc/default/{controller}": f'OPTIONS="--config /{CONFIG}{options}"\n',
    }
    # NetworkManager must leave the ports alone.
    if Path("/etc/NetworkManager").is_dir():
        devices = ";".join(f"interface-name:{port.name}" for port in ports)
        made[NETWORK_MANAGER] = f"[device-access-point]\nmatch-device={devices}\nmanaged=0\n"
    return Plan((SWITCH, controller), made, tuple(ports))


def install(plan: Plan, root: Path, here: bool) -> list[Path]:
    """Write the files of a plan; return their paths. here: as in `problems`. Existing files are not overwritten: raises
    UsageError."""
    made = dict(plan.files)
    for unit in plan.units:
        text = (HOME / f"controller/{unit}.service").read_text()
        made[f"etc/systemd/system/{unit}.service"] = text.replace(NAMED, str(HOME))
    if there := [path for path in made if os.path.lexists(root / path)]:
        raise UsageError(f"{root / there[0]} exists, and is not apctl's: move it away")
    folders = [
        parent for path in (*made, MANIFEST) for parent in reversed(Path(path).parents) if not (root / parent).exists()
    ]
    kept = {
        "files": list(made),
        "folders": list(dict.fromkeys(map(str, folders))),
        "interfaces": {port.name: _before(port.name) for port in plan.ports} if here else {},
    }
    # The list is first: if this is interrupted, `remove` finds what was written.
    # Services are users of their own, and read it.
    before = os.umask(0o022)
    try:
        for path, text in {MANIFEST: json.dumps(kept, indent=2) + "\n", **made}.items():
            secret = path.startswith(f"{KEYS}/")
            (root / path).parent.parent.mkdir(parents=True, exist_ok=True)
            (root / path).parent.mkdir(0o700 if secret else 0o755, exist_ok=True)
            flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644
            with os.fdopen(os.open(root / path, flags, mode), "w") as file:
                file.write(text)
    finally:
        os.umask(before)
    return [root / path for path in made]


def _ipv6(name: str) -> Path:
    return Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")


def _before(name: str) -> dict[str, Any]:
    """Return the present settings of an interface that a unit changes."""
    ipv6 = _ipv6(name)
    return {
        "up": is_up(name),
        "offloads": offloads(name, wanted=True) or [],
        "disable_ipv6": ipv6.read_text().strip() if ipv6.exists() else None,
    }


def start(plan: Plan) -> None:
    """Start the units, now and at every boot. Raises UsageError with the message of systemctl."""
    _systemctl("daemon-reload")
    _tell_network_manager()
    _systemctl("enable", "--now", *plan.units)


class _InterfaceState(BaseModel):
    """An interface as `_before` found it."""

    model_config = ConfigDict(extra="forbid")
    up: bool
    offloads: list[Literal[OFFLOADS]]  # type: ignore[valid-type]
    disable_ipv6: Literal["0", "1"] | None


class _Manifest(BaseModel):
    """Files that were written, and former settings: nothing else is ever removed or restored."""

    model_config = ConfigDict(extra="forbid")
    files: list[str]
    folders: list[str]
    interfaces: dict[Annotated[str, Field(pattern=f"^{NAME.pattern}$")], _InterfaceState]

    @model_validator(mode="after")
    def _is_ours(self) -> "_Manifest":
        above = {str(parent) for path in (*WRITTEN, MANIFEST) for parent in Path(path).parents}
        if not (set(self.files) <= WRITTEN and set(self.folders) <= above):
            raise ValueError("it names what is never written")
        return self


def remove(root: Path, running: bool) -> list[Path]:
    """Stop the units, and remove everything that `install` and they left; return the files. If interrupted, it can be
    called again. Raises UsageError."""
    try:
        kept = _Manifest.model_validate_json((root / MANIFEST).read_text())
    except FileNotFoundError:
        raise UsageError(f"nothing to uninstall: {root / MANIFEST} not found") from None
    except (OSError, ValueError):
        raise UsageError(f"{root / MANIFEST} cannot be read: remove its units and files by hand") from None
    there = [unit for unit in UNITS if (root / f"etc/systemd/system/{unit}.service").exists()]
    if running and there:
        _systemctl("disable", "--now", *there)
    for path in kept.files:
        (root / path).unlink(missing_ok=True)
    for state in (STATE, PRIVATE_STATE):
        if (root / state).is_symlink():
            (root / state).unlink()
        elif (root / state).exists():
            shutil.rmtree(root / state)
    for name, before in kept.interfaces.items():
        _restore(name, before)
    if running:
        _systemctl("daemon-reload")
        _tell_network_manager()
    (root / MANIFEST).unlink()
    for folder in reversed(kept.folders):
        if (root / folder).is_dir() and not any((root / folder).iterdir()):
            (root / folder).rmdir()
    return [root / path for path in kept.files]


def _restore(name: str, before: _InterfaceState) -> None:
    """Restore an interface; one that is gone needs nothing."""
    if list(present(name)):
        return
    if before.offloads and shutil.which("ethtool"):
        words = [word for feature in before.offloads for word in (feature, "on")]
        subprocess.run(["ethtool", "-K", name, *words], capture_output=True, check=False)
    if before.disable_ipv6 is not None and _ipv6(name).exists():
        _ipv6(name).write_text(before.disable_ipv6)
    if not before.up:
        subprocess.run(["ip", "link", "set", name, "down"], capture_output=True, check=False)


def _tell_network_manager() -> None:
    """Have NetworkManager reload its configuration, if it is installed; it need not run."""
    if shutil.which("nmcli"):
        subprocess.run(["nmcli", "general", "reload", "conf"], capture_output=True, check=False)


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        said = " ".join(line for line in lines if not line.startswith("Created symlink")) or "no reason given"
        raise UsageError(f"systemctl {words[0]}: {said}; `apctl uninstall` removes what was written")
