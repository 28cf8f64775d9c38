# SPDX-License-Identifier: Apache-2.0
"""Run the packet tests against a target: `python ptf-tests/run.py --target apswitch|bmv2 [--test NAME] [-v]`.

The run has a network namespace without a name: it and its interfaces vanish with the last process in it, however the
run ends. Results go to out/ptf/TARGET.json. Exit code: 0 all passed, 1 a test failed, 2 the run could not be made.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from targets import GRPC_ADDRESS, ROOT, TARGETS, LabError, MissingTargetError, Target

TESTS = ROOT / "ptf-tests/tests"
P4INFO, PROGRAM = "ap.p4info.txtpb", "ap.json"
PORTS = (1, 2, 3, 4)
OFFLOADS_OFF = [word for name in ("rx", "tx", "tso", "gso", "gro", "rxvlan", "txvlan") for word in (name, "off")]
MTU = 9216  # bytes, for jumbo frames
RUN_TIMEOUT = 900  # s; ptf waits for its threads for ever when it fails itself
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


class RunError(Exception):
    """The run cannot be made; the text names the thing and the mend."""


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


def push_pipeline(target: Target, program: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Load the program, then make the slow port slow."""
    from lib.p4runtime import Client, P4RuntimeError

    try:
        client = Client(GRPC_ADDRESS, program / P4INFO)
        client.push_pipeline((program / PROGRAM).read_bytes())
        client.close()
        target.slow_down()
    except (P4RuntimeError, LabError, OSError) as error:
        state = "" if process.poll() is None else f"; the target ended with code {process.returncode}"
        raise RunError(f"the program could not be loaded: {error}{state}; its log: {log}") from None


def find_tests(spec: str | None) -> list[str]:
    """Names of the tests that a spec (`test_mark` or `test_mark.MarkEct0`) selects; None selects all."""
    command = [
        sys.executable,
        ptf_script(),
        "--test-dir",
        str(TESTS),
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
    """PTF's own script, beside the Python that runs this."""
    return str(Path(sys.executable).parent / "ptf")


def run_tests(tests: list[str], target: Target, program: Path, out: Path, verbose: bool) -> list[dict[str, Any]]:
    """Run tests with PTF and return the outcome of each."""
    results = out / "results.jsonl"
    results.unlink(missing_ok=True)
    p4info = str(program / P4INFO)
    parameters = {"address": GRPC_ADDRESS, "p4info": p4info, "results": str(results), "cannot": target.cannot}
    command = [sys.executable, ptf_script(), "--test-dir", str(TESTS), "--pypath", str(TESTS.parent)]
    command += [word for port in PORTS for word in ("--interface", f"{port}@host{port}")]
    command += ["--log-dir", str(out / "log"), "--qlen", "20000", "--socket-recv-size", "65536"]
    command += ["--test-params", ";".join(f"{key}={value!r}" for key, value in parameters.items())]
    command += ["--debug", "debug" if verbose else "info", "--test-case-timeout", "60", *tests]
    process = start(command)
    try:
        process.wait(timeout=RUN_TIMEOUT)
    except subprocess.TimeoutExpired:
        pass  # what has no outcome has failed
    finally:
        stop(process)
    lines = results.read_text().splitlines() if results.exists() else []
    return [json.loads(line) for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the packet tests against a target.")
    parser.add_argument("--target", choices=TARGETS, default="apswitch")
    parser.add_argument("--test", metavar="NAME", help="a file (test_mark) or a test (test_mark.MarkEct0)")
    parser.add_argument("-v", "--verbose", action="store_true", help="log every packet to out/ptf/TARGET/log")
    parser.add_argument(
        "--program", metavar="DIR", type=Path, default=ROOT / "p4src", help="where the compiled program is"
    )
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    target = TARGETS[arguments.target]
    out = ROOT / "out/ptf" / arguments.target
    log = out / "target.log"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        target_version = target.version()
        for name in (PROGRAM, P4INFO):
            if not (program / name).is_file():
                raise RunError(f"{program / name} is missing; compile it with: tools/goldens.sh compile {program}")
        interfaces = enter_namespace()
        tests = find_tests(arguments.test)
        (out / "log").mkdir(parents=True, exist_ok=True)
        for old in out.glob("target.*"):
            old.unlink()
        started = time.time()
        with open(out / "target.out", "wb") as output:
            switch = start(target.command(interfaces, log), stdout=output, stderr=output)
        try:
            push_pipeline(target, program, switch, log)
            outcomes = run_tests(tests, target, program, out, arguments.verbose)
            alive = switch.poll() is None
        finally:
            stop(switch)
    except (RunError, MissingTargetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130

    # A test that PTF could not finish has no outcome; a target that ended is a failure whatever the tests say.
    done = {outcome["test"] for outcome in outcomes}
    outcomes += [
        {"test": name, "status": "failed", "reason": "did not run to its end"} for name in tests if name not in done
    ]
    if not alive:
        outcomes.append(
            {"test": "target", "status": "failed", "reason": f"ended with code {switch.returncode}; its log: {log}"}
        )
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
    Path(f"{out}.json").write_text(json.dumps(summary, indent=1) + "\n")
    for outcome in outcomes:
        if outcome["status"] != "passed":
            print(f"{outcome['status']}: {outcome['test']}: {outcome['reason']}")
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    print(f"{arguments.target}: {totals['passed']} passed, {totals['failed']} failed{skipped}")
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
