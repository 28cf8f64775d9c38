# SPDX-License-Identifier: Apache-2.0
"""Sessions over real TCP: finish times, per-socket options, faults, a thousand at once; and the fairness of results."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.pages import documented_commands
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links.paths import PathHost, Paths
from accesspoint.topologies.requirements import ROOT

HOSTS = ROOT / "target/release/hosts"
PORT = 8640
privileged = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
Model = dict[str, Any]


@pytest.fixture
def paths() -> Iterator[Paths]:
    with Paths() as made:
        yield made


def user(name: str, direction: str, *sessions: tuple[float, object], **more: object) -> Model:
    return {"name": name, "direction": direction, "sessions": [{"start": s, "length": n} for s, n in sessions], **more}


def serve(host: PathHost, *options: str) -> "subprocess.Popen[str]":
    options = options or ("--congestion", "cubic", "--congestion", "reno", "--congestion", "bbr")
    words: list[str | Path] = [HOSTS, "sessions", "serve", "--listen", f"[::]:{PORT}", "--open", *options]
    server = host.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout and server.stdout.readline() == f"listening on [::]:{PORT}\n"
    return server


def start(host: PathHost, model: Model, to: str, *options: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    words: list[str | Path] = [HOSTS, "sessions", "run", "-", "--to", to, *options]
    client = host.popen(*words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert client.stdin
    client.stdin.write(json.dumps(model))
    client.stdin.close()
    client.stdin = None
    return client


def end(client: "subprocess.Popen[str]", code: int = 0) -> list[dict[str, Any]]:
    """The sessions of a run with --json."""
    out, err = client.communicate(timeout=240)
    assert client.returncode == code, out + err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["kind"] == "run" and all(line["kind"] == "session" for line in lines[1:])
    return lines[1:]


@pytest.mark.realtime
@privileged
def test_finish_times_are_those_of_the_link_in_both_directions(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="8mbit", delay="10ms", limit=200)
    serve(b)
    sessions = [(0.0, 100_000), (1.0, 1), (1.5, 200_000)]
    model = {
        "seconds": 10,
        "users": [user("up", "up", *sessions), user("down", "down", *[(s + 3, n) for s, n in sessions])],
    }
    found = end(start(a, model, link.b_ip, "--json", "--congestion", "cubic"))
    assert [(s["user"], s["session"]) for s in found] == [(u, n) for u in ("up", "down") for n in (1, 2, 3)]
    for session in found:
        assert (session["outcome"], session["bytes"]) == ("finished", session["length"]), session
        assert (session["retransmits"], session["congestion"]) == (0, "cubic"), session
        # One byte takes the round trip of 20 ms. More take that and their time on the wire with 4 % of headers, and
        # slow start's idle time, of which 5 round trips are enough.
        least = 0.020 + (0 if session["length"] == 1 else session["length"] * 8 / 8e6)
        most = 0.040 if session["length"] == 1 else least * 1.1 + 5 * 0.020
        assert least <= session["finish"] <= most, session


@privileged
def test_the_page_is_true(paths: Paths, tmp_path: Path) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="5mbit", delay="10ms", limit=60)
    b.ip("address", "add", "10.0.0.1/32", "dev", "lo")
    a.ip("route", "add", "10.0.0.1", "via", link.b_ip)
    page = (ROOT / "docs/hosts/sessions.md").read_text()
    model = next(line for line in page.splitlines() if "sessions model" in line)
    subprocess.run(["bash", "-c", f"mkdir -p out; {model}"], cwd=ROOT, check=True)
    serve_, run, fairness = documented_commands("sessions")
    server = b.popen(*serve_.split(), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout and server.stdout.readline() == f"listening on [::]:{PORT}\n"
    a.run("bash", "-c", run, cwd=ROOT, timeout=240)
    assert "IF (95 %)" in a.run(*fairness.split(), cwd=ROOT)
    # The page's own model is one.
    own = tmp_path / "mine.json"
    own.write_text(re.search(r"```json\n(\{\n.*?)```", page, re.S)[1])  # type: ignore[index]
    client = a.popen(HOSTS, "sessions", "run", own, "--to", "10.0.0.1", "--json", stdout=subprocess.PIPE, text=True)
    assert len(client.communicate(timeout=240)[0].splitlines()) == 6


@pytest.mark.realtime
@privileged
def test_endless_sessions_share_a_link_until_the_end(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="8mbit", delay="2ms", limit=50)
    serve(b)
    users = [user(f"down{i}", "down", (0, "endless")) for i in range(2)] + [user("up", "up", (0, "endless"))]
    began = time.monotonic()
    found = end(start(a, {"seconds": 4, "users": users}, link.b_ip, "--json", "--congestion", "reno"))
    assert time.monotonic() - began < 8
    by_user = {session["user"]: session for session in found}
    assert len(by_user) == 3 and all(s["outcome"] == "endless" and s["finish"] is None for s in found), found
    down = (by_user["down0"]["bytes"] + by_user["down1"]["bytes"]) * 8 / 4
    assert 0.75 * 8e6 < down < 8e6, found
    assert 0.7 * 8e6 < by_user["up"]["bytes"] * 8 / 4 < 8e6, found
    # Two flows through a buffer of 50 packets lose some, and only the server knows.
    assert by_user["down0"]["retransmits"] + by_user["down1"]["retransmits"] > 0, found


@pytest.mark.realtime
@privileged
def test_a_session_that_has_to_wait_is_counted_from_its_start(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="2mbit", limit=100)
    serve(b)
    # 250 kB take a second and a bit; the second begins behind the first, or beside it.
    users = [user("u", "down", (0.0, 250_000), (0.2, 10_000))]
    first, second = end(start(a, {"seconds": 9, "users": users}, link.b_ip, "--json", "--congestion", "cubic"))
    assert second["start"] == 0.2
    assert second["start"] + second["finish"] > first["start"] + first["finish"] > 1.0
    users[0]["sessions"][0]["start"] = 0.1
    model = {"seconds": 9, "users": users, "connection": "session"}
    found = end(start(a, model, link.b_ip, "--json", "--congestion", "cubic"))
    assert {s["session"]: s["outcome"] for s in found} == {1: "finished", 2: "finished"}
    assert found[0]["session"] == 2, "a short session on a connection of its own need not wait for a long one"


@pytest.mark.realtime
@privileged
def test_interface_source_and_congestion_control_are_each_users(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    first, second = paths.wire(a, b), paths.wire(a, b)
    serve(b)
    users = [
        user("one", "up", (0, 1000), congestion="reno", source=second.a_ip),
        user("two", "down", (0, 500_000), congestion="cubic", interface=first.a_if),
    ]
    found = end(start(a, {"seconds": 5, "users": users}, second.b_ip, "--json"))
    assert {s["user"]: s["congestion"] for s in found} == {"one": "reno", "two": "cubic"}
    # The server's address is behind the second interface; the user asked for the first.
    received = [
        json.loads(a.ip("-j", "-s", "link", "show", "dev", link.a_if))[0]["stats64"]["rx"]["bytes"]
        for link in (first, second)
    ]
    assert received[0] > 500_000 > 100_000 > received[1], received


@privileged
def test_wrong_sockets_are_named_before_the_run_begins(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    wire = paths.wire(a, b)
    serve(b, "--congestion", "warp")
    for direction, more, message in (
        ("up", {"congestion": "warp"}, "congestion control 'warp': No such file"),
        ("down", {"congestion": "warp"}, "the server: congestion control 'warp': No such file"),
        ("up", {"interface": "wlan7"}, "interface 'wlan7': No such device"),
        ("up", {"source": "192.0.2.7"}, "source 192.0.2.7: Cannot assign"),
    ):
        model = {"seconds": 5, "users": [user("x", direction, (0, 1), **more)]}
        client = start(a, model, wire.b_ip, "--json")
        out, err = client.communicate(timeout=120)
        assert (client.returncode, out, err.count("\n")) == (2, "", 1), out + err
        assert err.startswith("error: users[0] (x): ") and message in err, err


@pytest.mark.realtime
@privileged
def test_a_server_that_vanishes_costs_no_result(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="8mbit", limit=100)
    server = serve(b)
    often = [(0.3 * i, 5000) for i in range(10)]
    users = [user("often", "down", *often), user("up", "up", *often), user("long", "up", (0, "endless"))]
    client = start(a, {"seconds": 4, "users": users}, link.b_ip, "--json")
    time.sleep(1.6)
    server.send_signal(signal.SIGKILL)
    out, err = client.communicate(timeout=120)
    assert client.returncode == 2
    assert re.fullmatch(r"error: \d+ of 21 sessions failed, first \w+ session \d+: [^\n]+\n", err), err
    found = [json.loads(line) for line in out.splitlines()][1:]
    outcomes = {(s["user"], s["session"]): s["outcome"] for s in found}
    assert outcomes["often", 1] == outcomes["up", 1] == "finished"
    assert outcomes["often", 10] == outcomes["up", 10] == "failed"
    assert outcomes["long", 1] == "failed"
    assert next(s for s in found if s["user"] == "long")["bytes"] > 100_000, "what was acknowledged is known"


@pytest.mark.realtime
@privileged
def test_a_black_hole_leaves_sessions_unfinished(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="8mbit", limit=100)
    serve(b)
    model = {
        "seconds": 3,
        "users": [user("d", "down", (0, 1000), (1.5, 1000)), user("u", "up", (0, 1000), (1.5, 1000))],
    }
    client = start(a, model, link.b_ip, "--json")
    time.sleep(1.0)
    link.blackhole()
    found = end(client)
    assert {(s["user"], s["session"]): s["outcome"] for s in found} == {
        ("d", 1): "finished",
        ("u", 1): "finished",
        ("d", 2): "unfinished",
        ("u", 2): "unfinished",
    }


@privileged
def test_results_come_as_sessions_end_and_an_interrupt_ends_the_run(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    wire = paths.wire(a, b)
    serve(b)
    model = {"seconds": 1000, "users": [user("u", "up", (0, 1000), (900, 1000)), user("p", "down", (500, 1000))]}
    client = start(a, model, wire.b_ip, "--json")
    assert client.stdout
    assert json.loads(client.stdout.readline())["kind"] == "run"
    assert json.loads(client.stdout.readline())["outcome"] == "finished"
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=120)
    assert (client.returncode, out, err) == (0, "", "")


def cpu_seconds(process: "subprocess.Popen[str]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.realtime
@privileged
def test_who_waits_for_a_slow_link_takes_no_cpu(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="1mbit", limit=50)
    server = serve(b)
    # More than the kernel takes at once, on a connection that has already sent: room is waited for, for seconds.
    users = [user(way, way, (0, 1000), (0.2, 300_000), (900, 1)) for way in ("up", "down")]
    client = start(a, {"seconds": 1000, "users": users}, link.b_ip, "--json", "--congestion", "cubic")
    assert client.stdout
    found = [json.loads(client.stdout.readline()) for _ in range(5)][1:]
    assert min(s["finish"] for s in found if s["session"] == 2) > 2.3, found
    spent = {"client": cpu_seconds(client), "server": cpu_seconds(server)}
    client.send_signal(signal.SIGINT)
    client.communicate(timeout=120)
    assert max(spent.values()) < 0.25, f"{spent} s of CPU for 600 kB"


@pytest.mark.realtime
@privileged
def test_a_thousand_sessions_need_little_memory(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    wire = paths.wire(a, b)
    server = serve(b)
    users = [user(f"u{i}", "down" if i % 2 else "up", (i / 1000, 20_000)) for i in range(1000)]
    for connection in ("user", "session"):
        client = start(a, {"seconds": 30, "connection": connection, "users": users}, wire.b_ip, "--json")
        out, err = client.communicate(timeout=240)
        assert client.returncode == 0, err
        found = [json.loads(line) for line in out.splitlines()][1:]
        assert len(found) == 1000 and all(s["outcome"] == "finished" for s in found)
    status = Path(f"/proc/{server.pid}/status").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 64_000  # type: ignore[index]
    assert eventually(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) <= 20, 120)


@pytest.mark.realtime
@privileged
def test_stations_begin_together_and_their_results_are_one_run(paths: Paths, tmp_path: Path) -> None:
    server = paths.host("server")
    model = json.loads(
        subprocess.run([HOSTS, "sessions", "model", "--period", "1", "--seconds", "4"], capture_output=True).stdout
    )
    serve(server)
    at = str(round(time.time() + 3, 3))
    files, clients = [], []
    for station in model["users"]:
        host = paths.host(station["name"])
        link = paths.link(host, server, rate="4mbit", limit=50)
        options = ("--user", station["name"], "--at", at, "--congestion", "reno", "--json")
        clients.append(start(host, model, link.b_ip, *options))
    for number, client in enumerate(clients):
        out, err = client.communicate(timeout=240)
        assert client.returncode == 0, err
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text(out)
    words: list[str | Path] = [HOSTS, "sessions", "fairness", *files, "--down", "15.3mbit"]
    found = json.loads(subprocess.run([*words, "--json"], capture_output=True, check=True).stdout)
    assert (found["runs"], found["nodes"], found["finished"], found["unfinished"]) == (1, 4, 8, 0)
    # Each has a link of its own: the fair share of the sum is what a link carries, less slow start.
    index = found["instantaneous_fairness"]
    assert 0.3 < index["low"] <= index["value"] <= index["high"] < 1.1, found
    assert found["at_most"] == index["value"]
    assert "IF (95 %)" in subprocess.run(words, capture_output=True, text=True, check=True).stdout


@privileged
def test_strangers_do_not_stop_the_server(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    wire = paths.wire(a, b)
    server = serve(b)
    script = f"""
import json, os, socket
for nonsense in (
    b"", b"\\n", b"{{}}\\n", b"\\xff" * 10000, b'{{"hosts_sessions": 9}}\\n', b'{{"hosts_sessions": 1, "run": "x"}}\\n'
):
    with socket.create_connection(("{wire.b_ip}", {PORT})) as tcp:
        tcp.settimeout(8)
        try:
            tcp.sendall(nonsense)
            tcp.shutdown(socket.SHUT_WR)
            tcp.recv(1000)
        except OSError:
            pass
control = socket.create_connection(("{wire.b_ip}", {PORT}))
control.sendall(b'{{"hosts_sessions": 1}}\\n')
run = json.loads(control.recv(1000))["run"]
for request in (bytes(16), b"\\x01" * 16, os.urandom(16), b"\\x02" + bytes(14) + b"\\x05"):
    data = socket.create_connection(("{wire.b_ip}", {PORT}))
    data.sendall(json.dumps({{"hosts_sessions": 1, "run": run}}).encode() + b"\\n" + request)
    data.close()
control.sendall(b"nonsense\\n")
"""
    a.run("python3", "-c", script, timeout=240)
    assert server.poll() is None
    model = {"seconds": 120, "users": [user("u", "down", (0, 1000))]}
    assert end(start(a, model, wire.b_ip, "--json"))[0]["outcome"] == "finished"


@pytest.mark.realtime
@privileged
def test_a_flood_of_connections_keeps_no_other_out(paths: Paths) -> None:
    """Idle control and data connections of one address: its own make room, and their runs end with them."""
    a, b, stranger = paths.host("a"), paths.host("b"), paths.host("stranger")
    wire, other = paths.wire(a, b), paths.wire(stranger, b)
    server = serve(b, "--connections", "50")
    script = f"""
import json, socket, sys
held = []
for number in range(500):
    control = socket.create_connection(("{other.b_ip}", {PORT}))
    held.append(control)
    if number % 3:
        control.sendall(b'{{"hosts_sessions": 1}}\\n')
print("up", flush=True)
sys.stdin.readline()
alive = 0
for control in held:
    control.settimeout(0.01)
    try:
        while control.recv(1000):
            pass
    except TimeoutError:
        alive += 1
    except OSError:
        pass
print(alive)
"""
    words = (sys.executable, "-c", script)
    flood = stranger.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert flood.stdout and flood.stdout.readline() == "up\n"
    sessions = [(number / 100, 1000) for number in range(10)]
    model = {"seconds": 5, "users": [user("u", "down", *sessions)]}
    assert {session["outcome"] for session in end(start(a, model, wire.b_ip, "--json"))} == {"finished"}
    assert int(flood.communicate("\n", timeout=120)[0]) <= 50
    assert server.poll() is None


@privileged
def test_who_may_have_the_server_send_how(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    wire = paths.wire(a, b)
    model = {"seconds": 120, "users": [user("u", "down", (0, 1000))]}
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    server = serve(b, "--connections", "100")
    for control in ("cubic", "reno"):
        client = start(a, model, wire.b_ip, "--congestion", control)
        said = "".join(client.communicate(timeout=120))
        refused = f"congestion control '{control}': start the server with --congestion {control}"
        assert (refused in said) == (control not in allowed), said
    server.kill()
    server.wait()
    serve(b, "--congestion", "reno")
    assert end(start(a, model, wire.b_ip, "--json", "--congestion", "reno"))[0]["congestion"] == "reno"
    refused = "".join(start(a, model, wire.b_ip, "--congestion", "x" * 4000).communicate(timeout=120))
    assert "x" * 100 not in refused.replace("x" * 4000, "", 1), "what strangers write is not said again"


def test_the_server_is_for_this_host_unless_told() -> None:
    done = subprocess.run(
        [HOSTS, "sessions", "serve", "--listen", "[::]:0"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "say --open, or listen on 127.0.0.1" in done.stderr) == (2, True)
    words: list[str | Path] = [HOSTS, "sessions", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdout.readline().startswith("listening on 127.0.0.1:")
        server.kill()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{", "not JSON"),
        ('{"seconds": 5}', "users: missing in the model"),
        (
            '{"seconds": 5, "users": [{"direction": "up", "sessions": [{"start": 0, "lenght": 5}]}]}',
            "users[0].sessions[0].lenght: no such field",
        ),
    ],
)
def test_a_malformed_model_gets_one_line_that_names_the_field(tmp_path: Path, model: str, message: str) -> None:
    file = tmp_path / "model.json"
    file.write_text(model)
    done = subprocess.run([HOSTS, "sessions", "run", file, "--to", "127.0.0.1"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: model {file}: {message}"), done.stderr


def test_bad_results_and_options_are_named(tmp_path: Path) -> None:
    file = tmp_path / "results"
    run = {"kind": "run", "started": 1.0, "seconds": 10.0, "nodes": 4, "server": "x"}
    file.write_text(json.dumps(run) + "\n{}\n")
    for words, message in (
        (["fairness", file, "--down", "1mbit"], f"{file} line 2: no result of `hosts sessions run --json`"),
        (["fairness", "/nowhere"], "/nowhere: No such file"),
        (["run", "/nowhere", "--to", "x"], "model /nowhere: No such file"),
        (["model", "--nodes", "3"], "invalid value '3' for '--nodes <NODES>'"),
        (["model", "--period", "0"], "users[2].sessions[0].period: 0"),
    ):
        done = subprocess.run([HOSTS, "sessions", *words], capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith(f"error: {message}"), done.stderr
    # A line that a kill cut off is no error.
    file.write_text(json.dumps(run) + '\n{"kind": "sess')
    done = subprocess.run([HOSTS, "sessions", "fairness", file, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["finished"] == 0
