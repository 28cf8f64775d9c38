# SPDX-License-Identifier: Apache-2.0
"""Whatever ends the CWND middleware: its bounds are undone, and no process and no BPF program stays behind."""

import ctypes
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.hosts.cell import UNBOUNDED, Cell, Flow, Terminal
from accesspoint.checks.harness.waiting import eventually

pytestmark = [pytest.mark.realtime, pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")]
FIVE = ("--bandwidth", "5")


def bpf_programs() -> list[str]:
    """The names of all loaded BPF programs (bpf(2))."""
    bpf = ctypes.CDLL(None, use_errno=True).syscall
    get_next_id, get_fd_by_id, get_info = 11, 13, 15
    names: list[str] = []
    number = 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("IIII", number, 0, 0, 0), 128)
        if bpf(321, get_next_id, attributes, 128) < 0:
            return names
        number = struct.unpack_from("I", attributes, 4)[0]
        descriptor = bpf(321, get_fd_by_id, ctypes.create_string_buffer(struct.pack("I", number), 128), 128)
        if descriptor < 0:
            continue  # gone meanwhile
        info = ctypes.create_string_buffer(256)
        request = struct.pack("IIQ", descriptor, 256, ctypes.addressof(info))
        if bpf(321, get_info, ctypes.create_string_buffer(request, 128), 128) == 0:
            names.append(info.raw[64:80].split(b"\0")[0].decode())
        os.close(descriptor)


def processes(terminal: Terminal) -> list[tuple[int, str]]:
    """The middleware's processes: ids and names."""
    found = []
    namespace = os.stat(f"/proc/{terminal.host.pid}/ns/net").st_ino
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name = (path / "comm").read_text().strip()
            if name in ("hosts", "cwnd-guardian") and os.stat(path / "ns/net").st_ino == namespace:
                found.append((int(path.name), name))
        except OSError:
            continue  # gone meanwhile
    return found


def guardian(terminal: Terminal) -> int:
    found = eventually(lambda: [pid for pid, name in processes(terminal) if name == "cwnd-guardian"])
    assert len(found) == 1
    return int(found[0])


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[Terminal, list[Flow]]]:
    """A terminal with an IPv4 and an IPv6 connection that see a high ratio without losses: another terminal keeps some
    hundred packets in the uplink's buffer. Reno, because CUBIC's HyStart sets the threshold by the delay alone."""
    with Cell(2) as cell:
        terminal, other = cell.terminals
        options = ("--tcp", "reno", "--pause", "0.02")
        flows = [terminal.connect(*options, to=address).go() for address in (cell.SERVER, cell.SERVER6)]
        time.sleep(0.5)
        other.connect("--buffer", "200000").go()
        assert eventually(lambda: min(ratio for flow in flows for ratio in flow.ratios()) > 8), "no queue"
        # The growing queue may have caused a spurious timeout, which shows as a bound does: one round resets it.
        daemon = terminal.middleware(*FIVE)
        assert eventually(lambda: thresholds(flows) == {1})
        daemon.terminate()
        daemon.wait()
        assert thresholds(flows) == {UNBOUNDED}
        yield terminal, flows


def thresholds(flows: list[Flow]) -> set[int]:
    return set().union(*(flow.thresholds() for flow in flows))


def await_bound(terminal: Terminal, flows: list[Flow]) -> None:
    assert eventually(lambda: thresholds(flows) == {1}), terminal.status()


def await_undone(terminal: Terminal, flows: list[Flow], seconds: float = 5.0) -> None:
    assert eventually(lambda: thresholds(flows) == {UNBOUNDED}, seconds), thresholds(flows)
    assert eventually(lambda: not processes(terminal)), processes(terminal)


def nothing_left() -> bool:
    return bool(eventually(lambda: "bound" not in bpf_programs()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_undoes_before_the_end(busy: tuple[Terminal, list[Flow]], number: int) -> None:
    terminal, flows = busy
    daemon = terminal.middleware(*FIVE)
    await_bound(terminal, flows)
    assert "bound" in bpf_programs()
    daemon.send_signal(number)
    assert daemon.wait(120) == 0
    assert thresholds(flows) == {UNBOUNDED}
    assert not processes(terminal)
    assert nothing_left()


def test_a_hundred_kills_leave_nothing(busy: tuple[Terminal, list[Flow]]) -> None:
    terminal, flows = busy
    for _ in range(100):
        daemon = terminal.middleware(*FIVE, start_new_session=True)
        await_bound(terminal, flows)
        # Its whole process group, as a terminal or a script would.
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
        await_undone(terminal, flows)
    assert nothing_left()


def test_a_daemon_that_hangs_loses_its_lease(busy: tuple[Terminal, list[Flow]]) -> None:
    terminal, flows = busy
    daemon = terminal.middleware(*FIVE)
    await_bound(terminal, flows)
    daemon.send_signal(signal.SIGSTOP)
    assert eventually(lambda: thresholds(flows) == {UNBOUNDED}), thresholds(flows)
    daemon.send_signal(signal.SIGCONT)
    await_bound(terminal, flows)
    daemon.kill()
    daemon.wait()
    await_undone(terminal, flows)


def test_a_guardian_that_dies_is_replaced(busy: tuple[Terminal, list[Flow]]) -> None:
    terminal, flows = busy
    daemon = terminal.middleware(*FIVE)
    await_bound(terminal, flows)
    first = guardian(terminal)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: guardian(terminal) != first)
    daemon.kill()
    daemon.wait()
    await_undone(terminal, flows)
    assert nothing_left()


def test_a_connection_that_leaves_the_interface_is_let_go(busy: tuple[Terminal, list[Flow]]) -> None:
    terminal, flows = busy
    daemon = terminal.middleware(*FIVE)
    await_bound(terminal, flows)
    terminal.host.ip("address", "delete", f"{terminal.address}/16", "dev", "eth0")
    try:
        assert eventually(lambda: flows[0].thresholds() == {UNBOUNDED}), flows[0].info()
        assert flows[1].thresholds() == {1}
    finally:
        terminal.host.ip("address", "add", f"{terminal.address}/16", "dev", "eth0")
        terminal.host.ip("route", "replace", "default", "via", "10.2.255.254")
        daemon.terminate()
        daemon.wait()
    await_undone(terminal, flows)


def test_nobody_waits_for_the_guardian(busy: tuple[Terminal, list[Flow]]) -> None:
    """A pipe of a killed daemon ends at once."""
    terminal, _ = busy
    daemon = terminal.middleware(*FIVE, stdout=subprocess.PIPE)
    pid = guardian(terminal)
    os.kill(pid, signal.SIGSTOP)
    try:
        daemon.kill()
        daemon.communicate(timeout=2)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: not processes(terminal))
