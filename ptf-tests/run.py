# SPDX-License-Identifier: Apache-2.0
"""Run the packet tests against a target: `python ptf-tests/run.py --target apswitch|bmv2 [--test NAME] [-j 4] [-v]`.

With `--connections N` only the model of connections runs: on apswitch in virtual time, elsewhere behind PTF.

The run has a network namespace without a name: it and its interfaces vanish with the last process in it, however the
run ends. With `-j N` there are N of them with a switch each, which share the tests: these wait more than they compute.
A target that runs already, as a Tofino does, is named instead: `--address 192.0.2.1:9559 --interface 1@veth3
--interface 2@veth5 ...`, the interfaces being where the tests send and receive.

Results go to out/ptf/TARGET.json, those of a second run at the same time to out/ptf/TARGET-2.json. Exit code: 0 all
passed, 1 a test failed, 2 the run could not be made.
"""

import argparse
import ctypes
import fcntl
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.waiting import eventually
from accesspoint.ptf_tests.lib.ports import PORTS, SLOW
from accesspoint.ptf_tests.targets import (
    CONNECTIONS_LINK,
    GRPC_ADDRESS,
    ROOT,
    TARGETS,
    LabError,
    MissingTargetError,
    Target,
)
from accesspoint.topologies.links.veth import are_up

TESTS = ROOT / "ptf-tests/tests"
OFFLOADS_OFF = [word for name in ("rx", "tx", "tso", "gso", "gro", "rxvlan", "txvlan") for word in (name, "off")]
CASES = 300  # entries and frames that test_model compares with its model
CONNECTIONS_TEST = "test_connections"
MTU = 9216  # bytes, for jumbo frames
CASE_TIMEOUT = 300  # s, for one that hangs
RUN_TIMEOUT = 3000  # s; ptf waits for its threads for ever when it fails itself
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


class RunError(Exception):
    """A run that cannot be made; the text names the cause and the fix."""


@dataclass(frozen=True)
class Place:
    """Place of a target: its P4Runtime server, the tests' interfaces by port, and the program that it gets."""

    address: str
    interfaces: dict[int, str]
    p4info: Path
    device_config: Path


def named_interfaces(words: list[str]) -> dict[int, str]:
    """The tests' interfaces of a target that runs already."""
    interfaces: dict[int, str] = {}
    for word in words:
        number, _, name = word.partition("@")
        if not number.isdigit() or int(number) not in PORTS or not name:
            raise RunError(f"--interface {word} is not PORT@NAME with a port of {PORTS[0]} to {PORTS[-1]}")
        interfaces[int(number)] = name
    for port in PORTS:
        if port not in interfaces:
            raise RunError(f"port {port} has no interface; name it with --interface {port}@NAME")
    return interfaces


def find_program(target: Target, directory: Path, device_config: Path | None) -> tuple[Path, Path]:
    """P4Info and device config of the compiled program."""
    if device_config is None and target.device_config is None:
        raise RunError(f"{target.name} takes a device config of its vendor's format; name it with --device-config FILE")
    found = directory / target.p4info, device_config or directory / str(target.device_config)
    for path in reversed(found):
        if not path.is_file():
            raise RunError(f"{path} is missing; correct its name, or compile it with: tools/goldens.sh compile DIR")
    return found


def enter_namespace() -> dict[int, str]:
    """Give this process a network namespace with a veth pair for each port; return the target's ends by port."""
    if libc.unshare(CLONE_NEWNET) != 0:
        raise RunError(f"no network namespace ({os.strerror(ctypes.get_errno())}); run as root")
    for scope in ("all", "default"):
        disable_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if disable_ipv6.exists():
            disable_ipv6.write_text("1")  # no router solicitations between the tests' packets
    commands = ["link set lo up"]
    for port in PORTS:
        commands.append(f"link add switch{port} mtu {MTU} type veth peer name host{port} mtu {MTU}")
        commands += [f"link set {name}{port} up" for name in ("switch", "host")]
    call("ip", "-batch", "-", text="\n".join(commands))
    for port in PORTS:
        for name in ("switch", "host"):
            call("ethtool", "-K", f"{name}{port}", *OFFLOADS_OFF)
    if not eventually(lambda: are_up(call("ip", "-json", "link", "show", "type", "veth"))):
        raise RunError("the interfaces have no carrier")
    return {port: f"switch{port}" for port in PORTS}


def call(*command: str, text: str = "") -> str:
    """Run a tool to its end and return what it printed."""
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        raise RunError(f"{command[0]} is missing; install it with: make setup") from None
    if done.returncode != 0:
        raise RunError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip().splitlines()[0]}")
    return done.stdout.strip()


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that ends when this one does, even by SIGKILL, and leaves Ctrl-C to this one."""
    mourn = partial(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    return subprocess.Popen(command, preexec_fn=mourn, process_group=0, **options)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that `start` started."""
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def push_pipeline(target: Target, place: Place, process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """Load the program, then make the slow port slow."""
    from accesspoint.ptf_tests.lib.p4runtime import Client, P4RuntimeError

    try:
        client = Client(place.address, place.p4info)
        client.push_pipeline(place.device_config.read_bytes())
        client.close()
        target.slow_down()
    except (P4RuntimeError, LabError, OSError) as error:
        state = f"; the target ended with code {process.returncode}" if process and process.poll() is not None else ""
        state += f"; its log: {log}" if process else ""
        raise RunError(f"the program could not be loaded: {error}{state}") from None


def find_tests(spec: str | None, directory: Path) -> list[str]:
    """Names of the tests in a directory that a spec (`test_mark` or `test_mark.MarkEct0`) selects; None: all."""
    command = [
        sys.executable,
        ptf_script(),
        "--test-dir",
        str(directory),
        "--pypath",
        str(TESTS.parent),
        "--list-test-names",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        command += ["--log-dir", scratch, *([spec] if spec else [])]
        done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode != 0:
        known = "" if spec is None else f"no test is named {spec}; "
        raise RunError(f"{known}ptf says: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return [line for line in done.stdout.splitlines() if line.startswith("test_")]


def ptf_script() -> str:
    """PTF's own script, next to the Python that runs this."""
    return str(Path(sys.executable).parent / "ptf")


def run_tests(
    tests: list[str], process: int | None, target: Target, place: Place, out: Path, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run tests with PTF and return the outcome of each. process: the target's, if it was started here."""
    directory = arguments.tests
    results = out / "results.jsonl"
    results.unlink(missing_ok=True)
    parameters: dict[str, object] = {
        "address": place.address,
        "process": process,
        "p4info": str(place.p4info),
        "results": str(results),
        "cannot": target.cannot,
        "cases": arguments.cases,
        "connections": arguments.connections or 0,
        "strict": arguments.strict,
        "seed": arguments.seed,
        **target.numbers(),
    }
    more = arguments.cases + 2 * (arguments.connections or 0)  # s
    command = [sys.executable, ptf_script(), "--test-dir", str(directory), "--pypath", str(TESTS.parent)]
    command += [word for port, name in place.interfaces.items() for word in ("--interface", f"{port}@{name}")]
    command += ["--log-dir", str(out / "log"), "--qlen", "20000", "--socket-recv-size", "65536"]
    command += ["--test-params", ";".join(f"{key}={value!r}" for key, value in parameters.items())]
    command += ["--debug", "debug" if arguments.verbose else "info"]
    command += ["--test-case-timeout", str(CASE_TIMEOUT + more), *tests]
    with nullcontext() if arguments.jobs == 1 else open(out / "ptf.out", "w+") as output:
        tester = start(command, stdout=output, stderr=output)
        try:
            tester.wait(timeout=RUN_TIMEOUT + more)
        except subprocess.TimeoutExpired:
            pass  # what has no outcome has failed
        finally:
            stop(tester)
        if output:  # in one piece, as other shares run
            output.seek(0)
            print(output.read(), end="", flush=True)
    lines = results.read_text().splitlines() if results.exists() else []
    return [json.loads(line) for line in lines]


def run_share(
    tests: list[str], target: Target, place: Place, out: Path, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run tests on a target in a network namespace of its own, or on the one that runs already; return outcomes."""
    interfaces = {} if arguments.address else enter_namespace()
    (out / "log").mkdir(parents=True, exist_ok=True)
    for old in out.glob("target.*"):
        old.unlink()
    log, switch, ended = out / "target.log", None, None
    if not arguments.address:
        with open(out / "target.out", "wb") as output:
            switch = start(target.command(interfaces, log), stdout=output, stderr=output)
    try:
        push_pipeline(target, place, switch, log)
        outcomes = run_tests(tests, switch.pid if switch else None, target, place, out, arguments)
        ended = switch.poll() if switch else None
    finally:
        if switch:
            stop(switch)
    # A test that PTF could not finish has no outcome; a target that ended is a failure whatever the tests say.
    done = {outcome["test"] for outcome in outcomes}
    outcomes += [
        {"test": name, "status": "failed", "reason": "did not run to its end"} for name in tests if name not in done
    ]
    if ended is not None:
        outcomes.append({"test": "target", "status": "failed", "reason": f"ended with code {ended}; its log: {log}"})
    return outcomes


def run_shares(
    tests: list[str], target: Target, place: Place, out: Path, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run tests in as many processes at a time as `arguments.jobs` says, each with its own target and folder."""
    if arguments.jobs == 1:
        return run_share(tests, target, place, out, arguments)
    # A process has one network namespace.
    pool = ProcessPoolExecutor(
        arguments.jobs, multiprocessing.get_context("fork"), libc.prctl, (PR_SET_PDEATHSIG, signal.SIGTERM)
    )
    with pool:
        shares = [
            pool.submit(run_share, tests[first :: arguments.jobs], target, place, out / str(first + 1), arguments)
            for first in range(min(arguments.jobs, len(tests)))
        ]
        return [outcome for share in shares for outcome in share.result()]


def own_folder(base: Path) -> Path:
    """Return a folder that no other run uses while this process runs: a lock in it says so."""
    for number in itertools.count(1):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_WRONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return folder
    raise AssertionError


def run_connections(arguments: argparse.Namespace) -> int:
    """Run modelled connections on apswitch in virtual time; print the counterexamples."""
    from accesspoint.ptf_tests.lib import fast

    p4info, device_config = find_program(TARGETS["apswitch"], arguments.program.resolve(), arguments.device_config)
    started = time.time()
    try:
        asked = arguments.connections, arguments.seed, arguments.strict, p4info, device_config
        total, found = fast.run(*asked, os.cpu_count() or 1)
    except (OSError, RuntimeError) as error:
        raise RunError(f"the connections could not be run ({error}); build the library with: make switch") from None
    seconds = time.time() - started
    out = ROOT / "out/ptf/connections.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    numbers = {"connections": total.connections, "cases": total.cases, "frames": total.frames}
    summary = {"target": "apswitch", "seed": arguments.seed, "seconds": round(seconds, 1), **numbers}
    summary["failures"] = [{"seed": one.number, "report": one.report} for one in found]
    out.write_text(json.dumps(summary, indent=1) + "\n")
    for one in found:
        print(f"case {one.number} (alone: --connections 1 --seed {one.number})\n{one.report}\n")
    print(
        f"apswitch: {total.connections} connections in {total.cases} cases from seed {arguments.seed}, {total.frames} "
        f"frames, {seconds:.0f} s: {len(found)} counterexamples"
    )
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the packet tests against a target.")
    parser.add_argument("--target", choices=TARGETS, default="apswitch")
    parser.add_argument("--test", metavar="NAME", help="a file (test_mark) or a test (test_mark.MarkEct0)")
    parser.add_argument("--tests", metavar="DIR", type=Path, default=TESTS, help="where the tests are, if not here")
    parser.add_argument(
        "-j", "--jobs", metavar="N", type=int, default=1, help="targets that share the tests; by default %(default)s"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log every packet to out/ptf/TARGET/log")
    parser.add_argument(
        "--cases", metavar="N", type=int, default=CASES, help="of test_model, for its model; by default %(default)s"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="the first of those cases; by default %(default)s"
    )
    parser.add_argument(
        "--program", metavar="DIR", type=Path, default=ROOT / "p4src/compiled", help="where the compiled program is"
    )
    parser.add_argument("--device-config", metavar="FILE", type=Path, help="the program as the target takes it")
    parser.add_argument("--address", metavar="HOST:PORT", help="P4Runtime server of a target that runs already")
    parser.add_argument("--interface", metavar="PORT@NAME", action="append", default=[], help="with --address")
    parser.add_argument(
        "--connections",
        metavar="N",
        type=int,
        help="run so many modelled connections, and no test; seeds as of --cases",
    )
    parser.add_argument(
        "--strict", action="store_true", help="with --connections: order is owed also to those without a flow's entry"
    )
    parser.add_argument("--ptf", action="store_true", help="with --connections: behind PTF also on apswitch")
    arguments = parser.parse_args()
    target = TARGETS[arguments.target]
    out = own_folder(ROOT / "out/ptf" / arguments.target)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if arguments.connections and arguments.target == "apswitch" and not (arguments.ptf or arguments.address):
            return run_connections(arguments)
        if arguments.jobs < 1 or (arguments.address and arguments.jobs > 1):
            raise RunError(f"--jobs {arguments.jobs}: 1 or more, and 1 with --address, which names one target")
        if arguments.address:
            target_version, address = f"at {arguments.address}", arguments.address
            hosts = named_interfaces(arguments.interface)
        else:
            target_version, address = target.version(), GRPC_ADDRESS
            hosts = {port: f"host{port}" for port in PORTS}
        place = Place(address, hosts, *find_program(target, arguments.program.resolve(), arguments.device_config))
        if arguments.connections:
            target = replace(target, links={SLOW: CONNECTIONS_LINK}, slow_down=target.slow_for_connections)
        tests = find_tests(CONNECTIONS_TEST if arguments.connections else arguments.test, arguments.tests)
        if not arguments.connections:
            tests = [name for name in tests if not name.startswith(CONNECTIONS_TEST)]  # the slow port is too slow
        started = time.time()
        outcomes = run_shares(tests, target, place, out, arguments)
    except (RunError, MissingTargetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130

    totals = {
        status: sum(outcome["status"] == status for outcome in outcomes) for status in ("passed", "failed", "skipped")
    }
    summary = {
        "target": arguments.target,
        "versions": {arguments.target: target_version, **{name: version(name) for name in ("ptf", "scapy", "finsy")}},
        "started": round(started, 3),
        "seconds": round(time.time() - started, 1),
        **totals,
        "tests": outcomes,
    }
    results = Path(f"{out}.json")
    results.write_text(json.dumps(summary, indent=1) + "\n")
    for outcome in outcomes:
        if outcome["status"] != "passed":
            print(f"{outcome['status']}: {outcome['test']}: {outcome['reason']}")
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    print(f"{arguments.target}: {totals['passed']} passed, {totals['failed']} failed{skipped}")
    print(f"written: {results}")
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
