# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments.catalogue.connections.host`: one end of connections. Commands are lines of JSON
on standard input, each
answered by one on standard output, so that nothing of them crosses the links that are measured.

{"do": "listen", "port", "scenario"}       server: serves one scenario, and the earlier connection of its port
{"do": "served", "port"}                   server: how that went
{"do": "prior", "address", "port", "source", "scenario"}    client: the earlier connection, which it resets
{"do": "connect", "address", "port", "source", "scenario"}  client: the scenario, timed
{"do": "sink", "port"}                     server: takes an upload
{"do": "upload", "address", "port"}        client: uploads until `stop`
{"do": "stream", "port", "seconds", "buffer", "address"}    both ways for a time; the server has no address
{"do": "counts"}                           challenge ACKs and bytes of the sink so far

Every wait has an end: a connection that stalls is given up LIMIT seconds after it was opened.
"""

import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 15.0  # s
GRACE = 3.0  # s that a server waits for longer than its client
BANNER, REQUEST, ANSWER, TURN, GO, DONE = 64, 120, 100, 48, 16, 32  # bytes
CHUNK = 1 << 17
IDLE = 1.3  # s of silence with keepalive, whose time is 1 s, the least that there is
INTERVAL = 0.25  # s between two samples of a stream
TOTAL_RETRANS = 8 + 23 * 4  # bytes into struct tcp_info (linux/tcp.h)
ECN_VALUES = {"off": 0, "on": 1, "accecn": 3}  # net.ipv4.tcp_ecn
CHALLENGES = ("TCPChallengeACK", "TCPACKSkippedChallenge")
Command = dict[str, Any]


class Stalled(Exception):
    """The other end stopped in the middle of the scenario, or closed."""


class Connection:
    """A socket whose every operation ends at the same time. deadline: of time.monotonic()."""

    def __init__(self, own: socket.socket, deadline: float) -> None:
        self.socket, self._deadline = own, deadline
        self.quick_acks = False
        self.first: float | None = None
        self.last = 0.0

    def _wait(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Stalled("timeout")
        self.socket.settimeout(left)

    def connect(self, address: tuple[str, int]) -> None:
        self._wait()
        self.socket.connect(address)

    def read(self, size: int) -> int:
        """Reads at most that many bytes; 0 at the end."""
        self._wait()
        count = len(self.socket.recv(min(size, CHUNK)))
        self.last = time.monotonic()
        if self.first is None:
            self.first = self.last
        if self.quick_acks:  # the kernel leaves this mode by itself
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return count

    def take(self, size: int) -> None:
        """Reads exactly that many bytes."""
        while size:
            count = self.read(size)
            if not count:
                raise Stalled("closed early")
            size -= count

    def drain(self) -> None:
        """Reads to the end."""
        while self.read(CHUNK):
            pass

    def send(self, size: int) -> None:
        block = bytes(min(size, CHUNK))
        while size:
            self._wait()
            size -= self.socket.send(block[: min(size, CHUNK)])

    def reset(self) -> None:
        """Closes at once, with RST."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def set_stack(scenario: Command) -> list[str]:
    """Sets what a namespace has for all of its connections to come; returns what this kernel lacks."""
    directory = Path("/proc/sys/net/ipv4")
    (directory / "tcp_timestamps").write_text(str(int(scenario["timestamps"])))
    (directory / "tcp_sack").write_text(str(int(scenario["sack"])))
    try:
        (directory / "tcp_ecn").write_text(str(ECN_VALUES[scenario["ecn"]]))
    except OSError:
        (directory / "tcp_ecn").write_text("1")
        return [scenario["ecn"]]
    return []


def open_socket(scenario: Command) -> tuple[socket.socket, list[str]]:
    """Returns a socket for a scenario, and what this kernel lacks."""
    family = socket.AF_INET if scenario["family"] == 4 else socket.AF_INET6
    lacking = []
    try:
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_MPTCP if scenario["mptcp"] else 0)
    except OSError:
        made, lacking = socket.socket(family, socket.SOCK_STREAM), ["mptcp"]
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if scenario["buffer"]:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, scenario["buffer"])
    return made, lacking


def prepare(connection: Connection, scenario: Command) -> list[str]:
    """Sets what belongs to an established connection; returns what this kernel lacks.

    A congestion control that is set before gives way to the route's (accesspoint.topologies.mininet.nodes.EndHost).
    """
    own, lacking = connection.socket, []
    try:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scenario["cc"].encode())
    except OSError:
        lacking.append(scenario["cc"])
        with contextlib.suppress(OSError):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    with contextlib.suppress(OSError):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.quick_acks = scenario["quick_acks"]
    if scenario["keepalive"]:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            with contextlib.suppress(OSError):
                own.setsockopt(socket.IPPROTO_TCP, option, 1)
    return lacking


def retransmitted(own: socket.socket) -> int:
    """Returns how many segments a connection has sent again."""
    try:
        info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int(struct.unpack_from("I", info, TOTAL_RETRANS)[0])
    except (OSError, struct.error):
        return 0


def challenge_acks() -> int:
    """Return the number of challenge ACKs that this namespace has sent, or held back for its limit of them."""
    lines = Path("/proc/self/net/netstat").read_text().splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        if names.startswith("TcpExt:"):
            known = dict(zip(names.split(), values.split(), strict=True))
            return sum(int(known.get(name, 0)) for name in CHALLENGES)
    return 0


def both_ways(connection: Connection, out: Callable[[], None], into: Callable[[], None]) -> None:
    """Sends and reads at the same time. Raises what either of them raised."""
    failed: list[Exception] = []

    def send() -> None:
        try:
            out()
        except (OSError, Stalled) as error:
            failed.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    into()
    thread.join()
    if failed:
        raise failed[0]


def serve(connection: Connection, scenario: Command) -> None:
    """Plays the server's part of a scenario."""
    if scenario["first"] == "server":
        connection.send(BANNER)
        connection.take(REQUEST)
    else:
        connection.take(REQUEST)
        connection.send(ANSWER)
    for _ in range(scenario["turns"]):
        connection.take(TURN)
        connection.send(TURN)
    connection.take(GO)
    into = (lambda: connection.drain()) if scenario["close"] == "half" else (lambda: connection.take(scenario["up"]))
    both_ways(connection, lambda: connection.send(scenario["down"]), into)
    connection.send(DONE)
    if scenario["close"] != "half":
        with contextlib.suppress(ConnectionResetError):
            connection.drain()


def ask(connection: Connection, scenario: Command) -> None:
    """Plays the client's part of a scenario, up to the last byte."""
    if scenario["first"] == "server":
        connection.take(BANNER)
        connection.send(REQUEST)
    else:
        connection.send(REQUEST)
        connection.take(ANSWER)
    for _ in range(scenario["turns"]):
        connection.send(TURN)
        connection.take(TURN)
    if scenario["keepalive"]:
        time.sleep(IDLE)

    def out() -> None:
        connection.send(GO + scenario["up"])
        if scenario["close"] == "half":
            connection.socket.shutdown(socket.SHUT_WR)

    both_ways(connection, out, lambda: connection.take(scenario["down"] + DONE))


class Host:
    """Connections and scenarios that this end has under way."""

    def __init__(self) -> None:
        self._served: dict[int, Command] = {}
        self._news = threading.Condition()
        self._sunk = 0
        self._upload: threading.Event | None = None

    def answer(self, command: Command) -> Command:
        do: Callable[[Command], Command] = getattr(self, f"do_{command['do']}")
        return do(command)

    def do_listen(self, command: Command) -> Command:
        scenario = command["scenario"]
        lacking = set_stack(scenario)
        listener, more = open_socket(scenario)
        listener.bind(("", command["port"]))
        listener.listen(8)
        thread = threading.Thread(target=self._serve, args=(listener, command["port"], scenario), daemon=True)
        thread.start()
        return {"lacking": lacking + more}

    def _serve(self, listener: socket.socket, port: int, scenario: Command) -> None:
        result: Command = {"outcome": "done", "retransmitted": 0}
        with listener:
            listener.settimeout(600)  # s: the longest that a phase lasts
            try:
                if scenario["age"] is not None:
                    self._serve_prior(listener.accept()[0], scenario)
                accepted = Connection(listener.accept()[0], time.monotonic() + LIMIT + GRACE)
                prepare(accepted, scenario)
                with accepted.socket:
                    try:
                        serve(accepted, scenario)
                    finally:
                        result["retransmitted"] = retransmitted(accepted.socket)
            except (OSError, Stalled) as error:
                result["outcome"] = str(error) or type(error).__name__
        with self._news:
            self._served[port] = result
            self._news.notify_all()

    @staticmethod
    def _serve_prior(own: socket.socket, scenario: Command) -> None:
        """Sends, or takes, until the client resets it."""
        connection = Connection(own, time.monotonic() + scenario["prior"] + LIMIT)
        prepare(connection, scenario)

        # On its own thread: the next connection between the same ports may come before the reset is seen.
        def carry() -> None:
            with contextlib.suppress(OSError, Stalled), own:
                if scenario["direction"] == "up":
                    connection.drain()
                else:
                    connection.send(1 << 40)

        threading.Thread(target=carry, daemon=True).start()

    def do_served(self, command: Command) -> Command:
        with self._news:
            self._news.wait_for(lambda: command["port"] in self._served, GRACE + 1)
            return self._served.pop(command["port"], {"outcome": "still serving", "retransmitted": 0})

    def do_prior(self, command: Command) -> Command:
        scenario = command["scenario"]
        set_stack(scenario)
        own, _ = open_socket(scenario)
        connection = Connection(own, time.monotonic() + scenario["prior"] + LIMIT)
        try:
            own.bind(("", command["source"]))
            connection.connect((command["address"], command["port"]))
            prepare(connection, scenario)
            end = time.monotonic() + scenario["prior"]
            while time.monotonic() < end:
                if scenario["direction"] == "up":
                    connection.send(CHUNK)
                else:
                    connection.read(CHUNK)
        except (OSError, Stalled) as error:
            return {"outcome": str(error)}
        finally:
            connection.reset()
        return {"outcome": "done", "ended": time.monotonic()}

    def do_connect(self, command: Command) -> Command:
        scenario = command["scenario"]
        lacking = set_stack(scenario)
        own, more = open_socket(scenario)
        if command["source"]:
            own.bind(("", command["source"]))
        time.sleep(max(0.0, command.get("not_before", 0.0) - time.monotonic()))
        started, connected = time.monotonic(), 0.0
        connection = Connection(own, started + LIMIT)
        result: Command = {"outcome": "done", "started": started}
        try:
            connection.connect((command["address"], command["port"]))
            connected = time.monotonic()
            lacking += more + prepare(connection, scenario)
            ask(connection, scenario)
            result["last"] = connection.last - started
        except (OSError, Stalled) as error:
            result["outcome"] = str(error) or type(error).__name__
        result |= {"retransmitted": retransmitted(own), "lacking": lacking}
        result |= {"connect": connected - started} if connected else {}
        result |= {"first": connection.first - started} if connection.first else {}
        if scenario["close"] == "rst" or "last" not in result:
            connection.reset()
        else:
            own.close()
        return result

    def do_sink(self, command: Command) -> Command:
        listener = socket.create_server(("", command["port"]))

        def take() -> None:
            with listener, contextlib.suppress(OSError):
                own, _ = listener.accept()
                while count := len(own.recv(CHUNK)):
                    self._sunk += count

        threading.Thread(target=take, daemon=True).start()
        return {}

    def do_upload(self, command: Command) -> Command:
        self._upload = threading.Event()
        own = socket.create_connection((command["address"], command["port"]), LIMIT)
        stop = self._upload

        def carry() -> None:
            connection, block = Connection(own, time.monotonic() + 3600), CHUNK
            with contextlib.suppress(OSError, Stalled):
                while not stop.is_set():
                    connection.send(block)
            connection.reset()

        threading.Thread(target=carry, daemon=True).start()
        return {}

    def do_stop(self, command: Command) -> Command:
        if self._upload:
            self._upload.set()
        return {}

    def do_counts(self, command: Command) -> Command:
        return {"challenge_acks": challenge_acks(), "sunk": self._sunk, "time": time.monotonic()}

    def do_stream(self, command: Command) -> Command:
        """Sends and reads as much as goes. The server answers when it listens, and has the result in `served`."""
        if "address" in command:
            own, _ = open_socket({"family": 4, "mptcp": False, "buffer": command["buffer"]})
            own.settimeout(LIMIT)
            own.connect((command["address"], command["port"]))
            return _stream(own, command["seconds"])
        listener, _ = open_socket({"family": 4, "mptcp": False, "buffer": command["buffer"]})
        listener.bind(("", command["port"]))
        listener.listen(1)

        def run() -> None:
            with listener:
                own, _ = listener.accept()
            result = _stream(own, command["seconds"])
            with self._news:
                self._served[command["port"]] = result
                self._news.notify_all()

        threading.Thread(target=run, daemon=True).start()
        return {}


def _stream(own: socket.socket, seconds: float) -> Command:
    """Sends and reads for a time; returns Mb/s of payload that came, by the end of each interval (s of the epoch)."""
    end = time.monotonic() + seconds
    rates: list[tuple[float, float]] = []

    def send() -> None:
        connection = Connection(own, end)
        with contextlib.suppress(OSError, Stalled):
            connection.send(1 << 40)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    due, volume = time.monotonic() + INTERVAL, 0
    reader = own.dup()
    while due <= end:
        reader.settimeout(max(0.001, due - time.monotonic()))
        try:
            count = len(reader.recv(CHUNK))
            if not count:
                break
            volume += count
        except TimeoutError:
            pass
        except OSError:
            break
        if time.monotonic() >= due:
            rates.append((time.time(), volume * 8 / INTERVAL / 1e6))
            due, volume = due + INTERVAL, 0
    thread.join()
    again = retransmitted(own)
    reader.close()
    Connection(own, end).reset()
    return {"outcome": "done", "rates": rates, "retransmitted": again}


def main() -> None:
    host = Host()
    for line in sys.stdin:
        try:
            answer = host.answer(json.loads(line))
        except Exception as error:  # whatever it is: who asked has to hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
