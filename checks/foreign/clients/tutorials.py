# SPDX-License-Identifier: Apache-2.0
"""p4lang/tutorials: `make run` of each exercise with its solution, judged by what the exercise's README promises.

`make run` compiles the program, and starts utils/run_exercise.py: Mininet with TCLink, a switch for each node, tables
over P4Runtime, and a prompt."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from accesspoint.checks.foreign.case import Failed, NotRun, case
from accesspoint.checks.foreign.stand import MININET, Session, Stand

CLIENT = "p4lang/tutorials"
PROMPT = "mininet> "
NONE_LOST = r" 0% dropped"
MESSAGE = "P4 is cool"


class Prompt(Protocol):
    """Mininet's prompt."""

    def ask(self, line: str, seconds: float = 60.0) -> str: ...


Scenario = Callable[[Stand, Session, Path], str | None]


def exercise(name: str, promise: str, seconds: float = 240.0, **known: str) -> Callable[[Scenario], Scenario]:
    """Make a function the case of an exercise: it is called at the prompt, in the exercise's folder."""

    def made(scenario: Scenario) -> Scenario:
        @case(
            f"tutorials-{name}", CLIENT, f"exercise {name}: {promise}", folder="tutorials", seconds=seconds, known=known
        )
        def run(stand: Stand) -> str | None:
            folder = prepare(stand, name)
            with Session(stand, "make", "run", cwd=folder, prompt=PROMPT, seconds=150.0) as session:
                refused = re.search(
                    r"^.*(?:gRPC Error|did not start correctly|Traceback|ERROR!).*$", session.opening, re.M
                )
                if refused:
                    raise Failed(refused[0].strip())
                return scenario(stand, session, folder)

        return scenario

    return made


def prepare(stand: Stand, name: str) -> Path:
    """Return a copy of the exercise, with the solution in place of the skeleton."""
    if not MININET.is_dir():
        raise NotRun("Mininet is missing: apt install mininet")
    if not shutil.which("p4c-bm2-ss"):
        raise NotRun("p4c-bm2-ss is not on PATH")
    stand.python  # noqa: B018
    folder = stand.copy("tutorials", "utils", f"exercises/{name}") / "exercises" / name
    for file in (folder / "solution").iterdir():
        shutil.copy(file, folder)
    for file in (folder / "solution").glob("*-runtime.json"):
        for topology in folder.glob("*-topo"):
            shutil.copy(file, topology)
    return folder


def matches(output: str, pattern: str, what: str) -> None:
    """Raises Failed when the output has not the pattern."""
    if not re.search(pattern, output, re.S):
        raise Failed(f"{what}: {' '.join(output.split())[-160:]!r}")


def flow(session: Prompt, client: str, server: str, address: str) -> None:
    """A TCP flow. Mininet's own command `iperf` may hang with any switch (mininet/mininet#1060)."""
    session.ask(f"{server} iperf -s > /dev/null 2>&1 &")
    session.ask(f"{server} sleep 1")
    matches(session.ask(f"{client} timeout 20 iperf -c {address} -t 3"), "bits/sec", f"iperf {client} {server}")


@contextmanager
def receiving(stand: Stand, session: Prompt, folder: Path, *hosts: str) -> Iterator[dict[str, Path]]:
    """Run receive.py in hosts; give each host's output."""
    outputs = {host: folder / f"{host}.log" for host in hosts}
    for host, path in outputs.items():
        session.ask(f"{host} ./receive.py > {path} 2>&1 &")
    for host, path in outputs.items():
        stand.wait_text(path, "sniffing on", 30, f"receive.py does not start in {host}")
        session.ask(f"{host} sleep 1")  # it says so before it listens
    yield outputs


@exercise("basic", "ping between any two hosts")
def basic(stand: Stand, session: Session, folder: Path) -> None:
    matches(session.ask("pingall"), NONE_LOST, "pingall")


@exercise("basic_tunnel", "a message by IP address, one through the tunnel, one to another host than its address")
def basic_tunnel(stand: Stand, session: Session, folder: Path) -> None:
    with receiving(stand, session, folder, "h2", "h3") as outputs:
        session.ask(f'h1 ./send.py 10.0.2.2 "{MESSAGE}"')
        stand.wait_text(outputs["h2"], f"got a packet.*{MESSAGE}", 20, "h2 does not get the message")
        session.ask(f'h1 ./send.py 10.0.2.2 "{MESSAGE} two" --dst_id 2')
        stand.wait_text(outputs["h2"], f"MyTunnel.*{MESSAGE} two", 20, "h2 does not get the tunnelled message")
        session.ask(f'h1 ./send.py 10.0.2.2 "{MESSAGE} three" --dst_id 3')
        stand.wait_text(outputs["h3"], f"MyTunnel.*{MESSAGE} three", 20, "h3 does not get the message of its tunnel")


@exercise("calc", "1+1 is 2, and so on for each operator")
def calc(stand: Stand, session: Session, folder: Path) -> None:
    answers = {"1+1": 2, "7-3": 4, "12&10": 8, "12|3": 15, "5^1": 4}
    lines = "\\n".join([*answers, "quit"])
    said = session.ask(f'h1 printf "{lines}\\n" | python3 calc.py')
    for question, answer in answers.items():
        matches(said, rf"{re.escape(question)}\s+{answer}\b", f"{question} is not {answer}")


@exercise("firewall", "TCP within and out of the network, none into it")
def firewall(stand: Stand, session: Session, folder: Path) -> None:
    for server, address in (("h2", "10.0.2.2"), ("h3", "10.0.3.3")):
        flow(session, "h1", server, address)
    session.ask("h1 iperf -s > /dev/null 2>&1 &")
    said = session.ask("h3 timeout -s KILL 5 iperf -c 10.0.1.1 -t 2")
    if "bits/sec" in said:
        raise Failed("h3 reaches h1 through the firewall")


@exercise("link_monitor", "probes report the links' utilization while iperf runs")
def link_monitor(stand: Stand, session: Session, folder: Path) -> None:
    with receiving(stand, session, folder, "h1") as outputs:
        session.ask("h1 ./send.py > /dev/null 2>&1 &")
        flow(session, "h1", "h4", "10.0.4.4")
        stand.wait_text(outputs["h1"], r"Switch \d+ - Port \d+: [1-9]\d*\.\d+ Mbps", 30, "no probe reports utilization")


@exercise("load_balance", "of several messages some are received by each server")
def load_balance(stand: Stand, session: Session, folder: Path) -> None:
    with receiving(stand, session, folder, "h2", "h3") as outputs:
        for number in range(12):
            session.ask(f'h1 ./send.py 10.0.0.1 "{MESSAGE} {number}"')
        for host, path in outputs.items():
            stand.wait_text(path, MESSAGE, 20, f"{host} gets none of 12 messages")


@exercise("multicast", "ping between all hosts of the multicast group")
def multicast(stand: Stand, session: Session, folder: Path) -> None:
    matches(session.ask("pingall"), NONE_LOST, "pingall")


@exercise("qos", "tos becomes 0xb9 for UDP and 0xb1 for TCP")
def qos(stand: Stand, session: Session, folder: Path) -> None:
    with receiving(stand, session, folder, "h2") as outputs:
        for protocol, tos in (("UDP", "0xb9"), ("TCP", "0xb1")):
            session.ask(f'h1 ./send.py --p={protocol} --des=10.0.2.2 --m="{MESSAGE}" --dur=2')
            stand.wait_text(outputs["h2"], rf"tos\s+= {tos}", 20, f"no {protocol} packet has tos {tos}")


@exercise("source_routing", "the ports 2 3 2 2 1 lead to h2, with a ttl of 59")
def source_routing(stand: Stand, session: Session, folder: Path) -> None:
    with receiving(stand, session, folder, "h2") as outputs:
        session.ask('h1 printf "2 3 2 2 1\\nq\\n" | ./send.py 10.0.2.2')
        stand.wait_text(outputs["h2"], r"ttl\s+= 59\b", 20, "h2 gets no packet with a ttl of 59")


@exercise("p4runtime", "mycontroller.py tunnels pings, and its counters count them")
def p4runtime(stand: Stand, session: Session, folder: Path) -> None:
    log = folder / "controller.log"
    session.ask(f"sh ./mycontroller.py > {log} 2>&1 &")
    stand.wait_text(log, "Reading tunnel counters", 30, "the controller does not get to its counters")
    matches(session.ask("h1 ping -c 3 h2"), " 0% packet loss", "h1 ping h2")
    stand.wait_text(
        log, r"s1 MyIngress.ingressTunnelCounter 100: [3-9] packets", 20, "the counters do not count the pings"
    )


@exercise("flowcache", "mycontroller.py sets flows on packet-in, and takes idle ones away")
def flowcache(stand: Stand, session: Session, folder: Path) -> None:
    log = folder / "controller.log"
    session.ask(f"sh ./mycontroller.py > {log} 2>&1 &")
    stand.wait_text(
        log, "Installed P4 Program.*on s3|SetForwardingPipelineConfig on s3", 40, "the controller sets no pipeline"
    )
    said = session.ask("h1 ping -c 6 h2")
    matches(said, r"[1-6] received", "h1 ping h2")
    stand.wait_text(log, r"[Ii]dle|[Dd]elet", 40, "no idle flow is reported")
    matches(session.ask("h1 ping -c 3 h3"), r"[1-3] received", "h1 ping h3")


def congested(stand: Stand, session: Prompt, folder: Path, seconds: int = 12) -> tuple[str, float]:
    """Send slowly from h1 to h2, and at 1 Mbit/s from h11 to h22; return the output of h2, and
    the rate that h22 gets in Mbit/s."""
    with receiving(stand, session, folder, "h2") as outputs:
        session.ask(f"h22 iperf -s -u > {folder}/iperf.log 2>&1 &")
        session.ask(f'h1 ./send.py 10.0.2.2 "{MESSAGE}" {seconds + 3} > /dev/null 2>&1 &')
        session.ask(f"h11 iperf -c 10.0.2.22 -t {seconds} -u", seconds + 60)
        said = stand.wait_text(outputs["h2"], MESSAGE, 20, "h2 gets no message")
    report = stand.wait_text(folder / "iperf.log", "bits/sec", 30, "iperf's server reports no rate")
    number, unit = re.findall(r"([\d.]+) ([KM])bits/sec", report)[-1]
    return said, float(number) / (1000 if unit == "K" else 1)


@exercise("ecn", "tos becomes 3 while iperf fills the queue of the link of 0.5 Mbit/s")
def ecn(stand: Stand, session: Session, folder: Path) -> str:
    return marks(*congested(stand, session, folder))


@exercise("mri", "the path's switches and their queues, a high one at the link of 0.5 Mbit/s")
def mri(stand: Stand, session: Session, folder: Path) -> str:
    said, _ = congested(stand, session, folder)
    matches(said, r"count\s+= 2.*swid\s+= 2.*swid\s+= 1", "no packet has the hops 2 and 1")
    depths = [int(depth) for depth in re.findall(r"swid\s+= 1\b\s+\W*qdepth\s+= (\d+)", said)]
    if max(depths, default=0) < 10:
        raise Failed(f"the hops are right; the queue of s1 is never deeper than {max(depths, default=0)} packets")
    return f"up to {max(depths)} packets"


def marks(said: str, rate: float) -> str:
    """Return the marks and the rate in words. Raises Failed when no packet is marked."""
    values = re.findall(r"tos\s+= (0x\w+)", said)
    passed = f"{rate:.2f} of 1.05 Mbit/s pass"
    if "0x3" not in values:
        raise Failed(f"none of {len(values)} packets is marked; {passed}")
    return f"{values.count('0x3')} of {len(values)} packets are marked; {passed}"
