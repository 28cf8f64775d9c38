# SPDX-License-Identifier: Apache-2.0
"""BATCP over real links: whatever happens to an interface, the file arrives whole, or both ends say why not."""

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.files import HOSTS, PORT, Transfer, make_file, when_received
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths
from accesspoint.topologies.requirements import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
SIZE = 2_000_000
RATE: dict[str, Any] = {"rate": "6mbit", "delay": "5ms", "limit": 40}
Links = list[PathLink]


@pytest.fixture
def hosts() -> Iterator[tuple[Paths, PathHost, PathHost]]:
    with Paths() as paths:
        yield paths, paths.host("client"), paths.host("server")


@pytest.fixture
def links(hosts: tuple[Paths, PathHost, PathHost]) -> Iterator[Links]:
    paths, a, b = hosts
    links = [paths.link(a, b, **RATE), paths.link(a, b, **RATE)]
    yield links
    for link in links:
        link.restore()  # a stopped switch would have to be waited for


def whole(
    links: Links,
    tmp_path: Path,
    fault: Callable[[], object] = lambda: None,
    size: int = SIZE,
    **options: tuple[str, ...],
) -> dict:
    """Sends a file, does `fault` once a fifth of it has arrived; it arrives whole. Returns the sender's summary."""
    folder = tmp_path / "received"
    folder.mkdir()
    digest = make_file(tmp_path / "file", size)
    with Transfer(links, tmp_path / "file", folder, **options) as transfer:
        when_received(links[0], size // 5, fault)
        sender, receiver = transfer.ends()
    assert (sender.code, receiver.code) == (0, 0), f"{sender.said} {receiver.said}"
    assert sender.summary["sha256"] == receiver.summary["sha256"] == digest
    assert os.listdir(folder) == ["file"]
    return sender.summary


def carried(summary: dict) -> dict[str, int]:
    return {total["interface"]: total["bytes_sent"] for total in summary["status"]["totals"]}


SCHEDULERS = pytest.mark.parametrize(
    ("scheduler", "estimator"), [("earliest", "delivered"), ("paper", "delivered"), ("paper", "paper")]
)
UNPRIVILEGED = "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--bounding-set=-all"


@SCHEDULERS
def test_both_interfaces_carry_the_file(links: Links, tmp_path: Path, scheduler: str, estimator: str) -> None:
    options = ("--scheduler", scheduler, "--estimator", estimator)
    assert both_carry(carried(whole(links, tmp_path, both=options, size=2 * SIZE)))


def both_carry(share: dict[str, int]) -> bool:
    """Return whether both interfaces carried some of a file; how much of it, a busy machine decides."""
    return len(share) == 2 and min(share.values()) > 0


@pytest.mark.realtime
@SCHEDULERS
def test_both_interfaces_carry_their_half(links: Links, tmp_path: Path, scheduler: str, estimator: str) -> None:
    share = carried(whole(links, tmp_path, both=("--scheduler", scheduler, "--estimator", estimator)))
    assert min(share.values()) > 0.4 * SIZE
    assert sum(share.values()) < 1.02 * SIZE


@pytest.mark.realtime
@pytest.mark.parametrize("options", [{"prefix": UNPRIVILEGED}, {"both": ("--paper",)}], ids=["unprivileged", "paper"])
def test_both_interfaces_carry_their_half_also(links: Links, tmp_path: Path, options: dict[str, Any]) -> None:
    open_to_all(tmp_path)
    assert min(carried(whole(links, tmp_path, **options)).values()) > 0.4 * SIZE


@pytest.mark.realtime
def test_one_percent_of_loss(hosts: tuple[Paths, PathHost, PathHost], tmp_path: Path) -> None:
    paths, a, b = hosts
    links = [paths.link(a, b, **RATE), paths.link(a, b, **RATE, loss=0.01, jitter="3ms")]
    assert min(carried(whole(links, tmp_path)).values()) > 0.1 * SIZE


@pytest.mark.realtime
@pytest.mark.parametrize("scheduler", ["earliest", "paper"])
def test_an_interface_goes_down(links: Links, tmp_path: Path, scheduler: str) -> None:
    fault = lambda: links[0].a.ip("link", "set", links[0].a_if, "down")  # noqa: E731
    share = carried(whole(links, tmp_path, fault, both=("--scheduler", scheduler)))
    assert share["eth1"] > 0.5 * SIZE


@pytest.mark.realtime
def test_an_interface_becomes_a_black_hole(links: Links, tmp_path: Path) -> None:
    summary = whole(links, tmp_path, links[0].blackhole)
    assert carried(summary)["eth1"] > 0.5 * SIZE
    assert summary["status"]["segments_repeated"] > 0


@pytest.mark.realtime
def test_a_short_black_hole_on_all_interfaces(links: Links, tmp_path: Path) -> None:
    def fault() -> None:
        for link in links:
            link.blackhole()
        time.sleep(2.5)
        for link in links:
            link.restore()

    whole(links, tmp_path, fault)


@pytest.mark.realtime
def test_an_interface_appears(links: Links, tmp_path: Path) -> None:
    late = links[1]
    late.a.ip("link", "set", late.a_if, "down")
    share = carried(whole(links, tmp_path, lambda: late.a.ip("link", "set", late.a_if, "up")))
    assert share["eth1"] > 0.1 * SIZE


@pytest.mark.realtime
def test_an_interface_is_renumbered(links: Links, tmp_path: Path) -> None:
    moved = links[0]

    def fault() -> None:
        moved.a.ip("address", "del", f"{moved.a_ip}/24", "dev", moved.a_if)
        moved.a.ip("address", "add", moved.a_ip + "0/24", "dev", moved.a_if)

    summary = whole(links, tmp_path, fault)
    first = next(total for total in summary["status"]["totals"] if total["interface"] == moved.a_if)
    assert first["subflows"] >= 2, "the interface came back under its new address"


@pytest.mark.realtime
@pytest.mark.parametrize("seed", [1, 2])
def test_one_fault_after_the_other(links: Links, tmp_path: Path, seed: int) -> None:
    """Interfaces down at either end, black holes and killed sockets, at random, for six seconds."""
    choose = random.Random(seed)

    def fault() -> None:
        until = time.monotonic() + 6
        while time.monotonic() < until:
            link = choose.choice(links)
            what = choose.choice(["near", "far", "hole", "kill"])
            if what == "kill":
                link.b.run("ss", "-K", "dst", link.a_ip, check=False)
            elif what == "hole":
                link.blackhole()
            else:
                host, name = (link.a, link.a_if) if what == "near" else (link.b, link.b_if)
                host.ip("link", "set", name, "down")
            time.sleep(choose.uniform(0.1, 2))
            link.restore()
            link.a.ip("link", "set", link.a_if, "up")
            link.b.ip("link", "set", link.b_if, "up")

    scheduler = ("earliest", "paper")[seed % 2]
    whole(links, tmp_path, fault, both=("--scheduler", scheduler), size=4_000_000)


def open_to_all(folder: Path) -> None:
    """Let everybody read a folder, and get there."""
    for parent in [folder, *folder.parents][:3]:
        parent.chmod(0o755)


def test_without_privilege(links: Links, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    assert both_carry(carried(whole(links, tmp_path, prefix=UNPRIVILEGED, size=2 * SIZE)))


def test_announced_in_the_option(links: Links, tmp_path: Path) -> None:
    summary = whole(links, tmp_path, both=("--paper",), size=2 * SIZE)
    assert not summary["status"]["plain"]
    assert both_carry(carried(summary))


def test_the_pages_commands(links: Links) -> None:
    page = (ROOT / "docs/hosts/batcp.md").read_text()
    block = re.search(r"^<!-- namespace -->\n```sh\n(.*?)^```", page, re.M | re.S)
    assert block
    key, receive, send = (["bash", "-c", line.replace("/tmp", "out")] for line in block[1].splitlines())
    (ROOT / "out").mkdir(exist_ok=True)
    subprocess.run(key, cwd=ROOT, check=True)
    receiver = links[0].b.popen(*receive, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert receiver.stderr
    receiver.stderr.readline()
    assert "interfaces" in links[0].a.run(*send, cwd=ROOT)
    receiver.communicate(timeout=120)
    assert (ROOT / "out/README.md").read_bytes() == (ROOT / "README.md").read_bytes()


@pytest.mark.realtime
def test_the_speed_from_memory_to_memory(links: Links, tmp_path: Path) -> None:
    key = ("--key-file", str(secret(tmp_path / "key")))
    here = ("--listen", f"0.0.0.0:{PORT}")
    receiver = links[0].b.popen(
        HOSTS, "batcp", "receive", "--discard", "--count", "1", *here, *key, stderr=subprocess.PIPE, text=True
    )
    assert receiver.stderr and receiver.stderr.readline().startswith("listening on")
    to = [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}", "--interface", link.a_if)]
    told = json.loads(links[0].a.run(HOSTS, "batcp", "send", *to, "--bytes", str(SIZE), *key, "--json"))
    assert receiver.wait(120) == 0
    assert told["bytes"] == SIZE and 6_000 < told["kbit_per_second"] < 12_000, "more than one link carries"
    assert min(carried(told).values()) > 0.3 * SIZE


def opened_from_there(tmp_path: Path, size: int) -> list[dict[str, Any]]:
    """Send a file from one interface here to two addresses there, with a subflow to each; return their totals."""
    with Paths() as paths:
        a, router, b = (paths.host(name) for name in ("a", "router", "b"))
        near, links = paths.wire(a, router), [paths.link(router, b, **RATE) for _ in range(2)]
        router.set("net.ipv4.ip_forward", 1)
        a.ip("route", "add", "default", "via", near.b_ip)
        for table, link in enumerate(links, 100):
            b.ip("rule", "add", "from", link.b_ip, "table", str(table))
            b.ip("route", "add", "default", "via", link.a_ip, "table", str(table))
        here = ("--listen", f"0.0.0.0:{PORT}", "--open", "--output", str(tmp_path), "--count", "1")
        receiver = b.popen(HOSTS, "batcp", "receive", *here, stderr=subprocess.PIPE, text=True)
        assert receiver.stderr and receiver.stderr.readline().startswith("listening on")
        sent = tmp_path / "sent" / "file"
        sent.parent.mkdir()
        make_file(sent, size)
        to = [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}", "--interface", near.a_if)]
        told = json.loads(a.run(HOSTS, "batcp", "send", str(sent), *to, "--json"))
        assert receiver.wait(120) == 0
    assert (tmp_path / "file").read_bytes() == sent.read_bytes()
    totals: list[dict[str, Any]] = told["status"]["totals"]
    assert [total["segments_sent"] > 0 for total in totals] == [True, True]
    return totals


def test_the_remote_end_opens(tmp_path: Path) -> None:
    assert min(total["bytes_sent"] for total in opened_from_there(tmp_path, 2 * SIZE)) > 0


@pytest.mark.realtime
def test_both_interfaces_of_the_remote_end_carry_their_half(tmp_path: Path) -> None:
    assert min(total["bytes_sent"] for total in opened_from_there(tmp_path, SIZE)) > 0.3 * SIZE


def failed(links: Links, tmp_path: Path, fault: Callable[[Transfer], object]) -> tuple[str, str]:
    """A transfer that cannot end well: what both ends say. Nothing of the file is left."""
    folder = tmp_path / "received"
    folder.mkdir()
    make_file(tmp_path / "file", SIZE)
    with Transfer(links, tmp_path / "file", folder, both=("--timeout", "3")) as transfer:
        when_received(links[0], SIZE // 5, lambda: fault(transfer))
        started = time.monotonic()
        sender, receiver = transfer.ends()
        assert time.monotonic() - started < 60, "the stated three seconds, and what a busy machine takes"
    for end, process in ((sender, transfer.sender), (receiver, transfer.receiver)):
        assert end.code == (2 if process.returncode != -9 else -9)
    if transfer.receiver.returncode != -9:
        assert os.listdir(folder) == []
    return sender.said, receiver.said


@pytest.mark.realtime
def test_the_peer_vanishes(links: Links, tmp_path: Path) -> None:
    def vanish(_: Transfer) -> None:
        for link in links:
            link.blackhole()

    sender, receiver = failed(links, tmp_path, vanish)
    assert sender.startswith("error: send ") and "has not answered on any interface for 3 s" in sender
    assert "has not answered on any interface for 3 s" in receiver


@pytest.mark.realtime
def test_the_receiver_is_killed(links: Links, tmp_path: Path) -> None:
    sender, _ = failed(links, tmp_path, lambda transfer: transfer.receiver.kill())
    assert "has not answered on any interface for 3 s" in sender, "a TCP reset is what anybody can send"


@pytest.mark.realtime
def test_the_receiver_is_restarted(links: Links, tmp_path: Path) -> None:
    def restart(transfer: Transfer) -> None:
        transfer.receiver.kill()
        words: list[str | Path] = ["--listen", f"0.0.0.0:{PORT}", "--output", tmp_path, "--key-file", transfer.key]
        links[0].b.popen(HOSTS, "batcp", "receive", *words, stderr=subprocess.DEVNULL)

    sender, _ = failed(links, tmp_path, restart)
    assert "no longer knows this connection" in sender, "who has the key is believed"


@pytest.mark.realtime
def test_the_sender_is_killed(links: Links, tmp_path: Path) -> None:
    _, receiver = failed(links, tmp_path, lambda transfer: transfer.sender.kill())
    assert "has not answered on any interface for 3 s" in receiver


def test_nobody_listens(links: Links, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    words = ["--to", f"{links[0].b_ip}:{PORT}", "--interface", "eth0", "--interface", "eth9"]
    done = links[0].a.popen(HOSTS, "batcp", "send", tmp_path / "file", *words, stderr=subprocess.PIPE, text=True)
    said = done.communicate(timeout=120)[1]
    assert done.returncode == 2
    assert "eth0: Connection refused" in said and "eth9: No such device" in said
    assert said.count("\n") == 1


MAGIC = b"BATCP\r\n\x03"


@contextlib.contextmanager
def receiving(folder: Path, *words: "str | Path") -> "Iterator[tuple[subprocess.Popen[str], int]]":
    """A receiver on this host, and its port."""
    command = [HOSTS, "batcp", "receive", "--listen", "127.0.0.1:0", "--output", folder, "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stderr
            yield receiver, int(receiver.stderr.readline().rpartition(":")[2])
        finally:
            receiver.kill()


def send(file: Path, port: int, *words: "str | Path") -> "subprocess.CompletedProcess[str]":
    command = [HOSTS, "batcp", "send", file, "--to", f"127.0.0.1:{port}", "--interface", "lo", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def secret(path: Path) -> Path:
    path.write_text(os.urandom(16).hex())
    path.chmod(0o600)
    return path


def test_strangers_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """Octets that are no hello, forged joins and half-open connections during a transfer on this host."""
    folder, key = tmp_path / "received", secret(tmp_path / "key")
    folder.mkdir()
    digest = make_file(tmp_path / "file", SIZE)
    with receiving(folder, "--count", "1", "--key-file", key) as (receiver, port):
        one, zero = b"\x3f\x80\0\0", bytes(4)
        head = b"\x00\x04\xd2" + one + zero
        join = MAGIC + b"\x02" + head + one + os.urandom(8) + bytes(16) + os.urandom(16)
        opening = MAGIC + b"\x01" + head + one + os.urandom(24) + bytes(16) + bytes(16)
        # A price that once ended the receiver.
        priced = MAGIC + b"\x01" + head + b"\0\0\0\x01" + os.urandom(24) + bytes(16)
        strangers = []
        noise = (b"", b"GET / HTTP/1.1\r\n" + bytes(60), os.urandom(64), priced, MAGIC + b"\x07" + bytes(55))
        for octets in (*noise, join, opening):
            for _ in range(20):
                stranger = socket.create_connection(("127.0.0.1", port))
                stranger.sendall(octets)
                strangers.append((octets, stranger))
        done = send(tmp_path / "file", port, "--key-file", key)
        assert done.returncode == 0, done.stderr
        # An opening that is read after the sender's is the second of one connection: busy.
        welcome, refused, busy = (MAGIC + bytes(7) + answer for answer in (b"\x01", b"\x04", b"\x05"))
        said = {join: (refused,), opening: (welcome, busy)}
        for octets, stranger in strangers:
            stranger.settimeout(120)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                answer = stranger.recv(100)
            assert answer[:16] in said.get(octets, (b"",))
            stranger.close()
        output, lines = receiver.communicate(timeout=120)
    assert digest in output, lines
    assert int(lines.rpartition(" subflows were refused")[0].split()[-1]) >= 100, lines


def test_who_may_send_files(tmp_path: Path) -> None:
    folder, key = tmp_path / "received", secret(tmp_path / "key")
    folder.mkdir()
    (tmp_path / "file").write_bytes(b"new")
    done = subprocess.run(
        [HOSTS, "batcp", "receive", "--listen", "127.0.0.1:0", "--output", folder],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, "--key-file" in done.stderr, "--open" in done.stderr) == (2, True, True)
    with receiving(folder, "--key-file", key) as (_, port):
        for words, why in (
            ((), "the peer has a key: give it here too"),
            (("--key-file", secret(tmp_path / "other")), "the peer has another key, or none"),
        ):
            done = send(tmp_path / "file", port, *words)
            assert (done.returncode, why in done.stderr) == (2, True), done.stderr
        assert os.listdir(folder) == []
        assert send(tmp_path / "file", port, "--key-file", key).returncode == 0
        (tmp_path / "file").write_bytes(b"newer")
        assert send(tmp_path / "file", port, "--key-file", key).returncode == 0
    assert (folder / "file").read_bytes() == b"newer"


def test_an_open_receiver_replaces_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "received"
    folder.mkdir()
    (folder / "file").write_bytes(b"old")
    (folder / "link").symlink_to(tmp_path / "target")
    with receiving(folder, "--open", "--largest", "100") as (receiver, port):
        for name, size in (("file", 10), ("link", 10), (".hidden", 10), ("large", 101)):
            (tmp_path / name).write_bytes(bytes(size))
            assert send(tmp_path / name, port).returncode == 2, name
        (tmp_path / "other").write_bytes(b"other")
        done = send(tmp_path / "other", port)
        assert done.returncode == 0, done.stderr
        receiver.kill()
        _, lines = receiver.communicate()
    assert (folder / "file").read_bytes() == b"old" and not (tmp_path / "target").exists()
    assert sorted(os.listdir(folder)) == ["file", "link", "other"]
    for why in ("'file' is there already", "'link' is there already", "begins with a dot", "'large' has 101 bytes"):
        assert why in lines


@pytest.mark.realtime
def test_a_flood_of_senders_keeps_no_other_out(tmp_path: Path) -> None:
    """A receiver that is open to everybody drops idle connections, those of the source with the most first."""
    folder = tmp_path / "received"
    folder.mkdir()
    (tmp_path / "file").write_bytes(os.urandom(100_000))
    with receiving(folder, "--open", "--connections", "4") as (_, port), contextlib.ExitStack() as stack:
        for number in range(300):
            stranger = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
            )
            if number % 3:
                stranger.sendall(MAGIC + b"\x01\0\x04\xd2\x3f\x80\0\0" + bytes(4) + b"\x3f\x80\0\0" + bytes(40))
        done = send(tmp_path / "file", port)
        assert done.returncode == 0, done.stderr
