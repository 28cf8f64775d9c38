# SPDX-License-Identifier: Apache-2.0
"""`make mutants`: every mutant of the compiled program must be found by a packet test, but for those that cannot be.

Each is loaded on apswitch, and the model is asked (tests/test_model.py), but not of the ACK filter: it decides each
packet alone. killers.toml names the test for those that the model cannot find, and for those that no test can find, the
reason. A different finding, or none, is an error; `--renew` searches killers of new mutants.

Exit code: 0 all as killers.toml says, 1 not, 2 it could not be tried.
"""

import argparse
import io
import json
import multiprocessing
import os
import sys
import time
import tomllib
import traceback
import unittest
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from queue import Empty
from typing import Any

import ptf
import ptf.dataplane
import ptf.testutils

from accesspoint.ptf_tests.lib import base
from accesspoint.ptf_tests.lib.fast import failing
from accesspoint.ptf_tests.lib.ports import PORTS
from accesspoint.ptf_tests.lib.simulated import Program
from accesspoint.ptf_tests.mutants.mutate import mutants
from accesspoint.ptf_tests.run import enter_namespace, start, stop
from accesspoint.ptf_tests.targets import GRPC_ADDRESS, ROOT, TARGETS

HERE = Path(__file__).resolve().parent
PROGRAM, P4INFO = ROOT / "p4src/compiled/ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb"
KILLERS = HERE / "killers.toml"
OUT = ROOT / "out/mutants"
MODEL = "test_model.ProgramFollowsThePolicy"
CONNECTIONS = "connections"  # in place of a test: the model of connections, in virtual time (run.py --connections)
CONNECTION_CASES = 400
CONNECTION_STAGES = "ack_filter", "own_data", "window_scale"  # of whose mutants the model of connections is asked
CASES = 300  # of the model, for each mutant; run.py has as many
SPARSE_HOLD = 1.1  # s; no flow is sparse in a switch's first second
SAMPLE = 6  # without --all: one of so many
# Where to look for a killer first: what a mutant's name begins with behind its kind -> modules of tests.
STAGE_TESTS = {
    "gate": "test_gate",
    "own_data": "test_own_data",
    "window_scale": "test_own_data",
    "ack_filter": "test_filter",
    "packet_io": "test_packet_io",
    "punt": "test_packet_io",
    "sparse": "test_sparse",
    "scalable": "test_scalable",
    "step": "test_scalable",
    "demote": "test_group",
    "classify": "test_pure_ack",
    "pure_ack": "test_pure_ack",
    "queue_meter": "test_classify",
    "port_feedback": "test_mark",
    "mark": "test_mark",
    "lanes": "test_lanes",
}
MODULES = sorted(
    path.stem
    for path in (HERE.parent / "tests").glob("test_*.py")
    if path.stem not in ("test_model", "test_connections")
)


class MutantSwitch:
    """A switch in a namespace of its own, and the tests' ports to it, in this process."""

    def __init__(self, name: str) -> None:
        target = TARGETS["apswitch"]
        interfaces = enter_namespace()
        with open(OUT / f"{name}.out", "wb") as output:
            self.process = start(target.command(interfaces, OUT / f"{name}.log"), stdout=output, stderr=output)
        ptf.config.update(
            platform="eth", qlen=20000, socket_recv_size=65536, relax=False, log_dir=str(OUT / name), debug="error"
        )
        ptf.config.update(log_file=str(OUT / f"{name}.tests"))
        os.makedirs(OUT / name, exist_ok=True)
        ptf.dataplane_instance = ptf.dataplane.DataPlane(ptf.config)
        for port in PORTS:
            ptf.dataplane_instance.port_add(f"host{port}", 0, port)
        parameters: dict[str, object] = {
            "address": GRPC_ADDRESS,
            "p4info": str(P4INFO),
            "results": os.devnull,
            "cannot": {},
            "process": self.process.pid,
        }
        ptf.testutils.TEST_PARAMS = parameters | {"cases": CASES, "seed": 0, **target.numbers()}
        self.p4 = base.connect()
        time.sleep(SPARSE_HOLD)

    def load(self, program: str) -> None:
        """Load a program in place of the one before, without entries."""
        self.p4.push_pipeline(program.encode())

    def failure(self, test: str) -> str:
        """Run a test and return its failure; empty when it passes."""
        module, name = test.split(".")
        result = unittest.TestResult()
        with redirect_stdout(io.StringIO()):
            getattr(import_module(f"accesspoint.ptf_tests.tests.{module}"), name)("runTest").run(result)
        found = result.failures + result.errors
        return (found[0][1].strip().splitlines()[-1][:100] or "failed") if found else ""

    def killer(self, modules: list[str], mutant: str, original: str) -> str:
        """Return a test that fails with the mutant and not with the program; empty when the modules have none."""
        for module in modules:
            for test in tests_of(module):
                if not self.failure(test):
                    continue
                self.load(original)
                failed = self.failure(test)
                self.load(mutant)
                if not failed:
                    return test
        return ""


def stage_of(name: str) -> str:
    """Return the file of the program that a mutant is of, by its name."""
    return name.split(": ")[1].split(".")[0] if ": " in name else ""


def tests_of(module: str) -> Iterator[str]:
    """The tests that a module defines."""
    for name, found in vars(import_module(f"accesspoint.ptf_tests.tests.{module}")).items():
        if isinstance(found, type) and found.__module__.endswith(f".{module}") and "runTest" in vars(found):
            yield f"{module}.{name}"


def work(number: int, tasks: Any, answers: Any, killers: dict[str, str], renew: bool) -> None:
    """Try all mutants: (mutant, what killed it)."""
    code = 1
    try:
        switch = MutantSwitch(f"switch{number}")
        program = json.loads(PROGRAM.read_text())
        makers = dict(mutants(program)) | {"": lambda: json.dumps(program)}
        while True:
            try:
                name = tasks.get(timeout=1)
            except Empty:
                break
            answers.put(
                (name, *attempt(switch, makers[name](), name, killers.get(name), makers[""]() if renew else ""))
            )
        # The switch is as it was, so it was the mutants that failed.
        answers.put(("", *attempt(switch, makers[""](), "", None, "")))
        answers.close()
        answers.join_thread()
        stop(switch.process)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # PTF's thread that receives would not end


def attempt(switch: MutantSwitch, program: str, name: str, killer: str | None, original: str) -> tuple[str, str]:
    """Return the test that found a mutant, and how it failed; empty if none.

    original: the program itself, if a test that is not known is to be looked for.
    """
    try:
        switch.load(program)
    except Exception as error:
        return "load", str(error)[:200]
    if killer == CONNECTIONS:
        return (killer, how) if (how := connection_failure(program)) else ("", "")
    if killer and killer != MODEL:
        return (killer, how) if (how := switch.failure(killer)) else ("", "")
    stage = stage_of(name)
    if stage != "ack_filter" and (how := switch.failure(MODEL)):
        return MODEL, how
    if not original:
        return "", ""
    own = STAGE_TESTS.get(stage)
    if name and own and (test := switch.killer([own], program, original)):
        return test, ""
    if not name or stage in CONNECTION_STAGES:
        return (CONNECTIONS, how) if (how := connection_failure(program)) else ("", "")
    return switch.killer([module for module in MODULES if module != own], program, original), ""


def connection_failure(program: str) -> str:
    """Return how a modelled connection fails; empty when none does."""
    found = next(failing(Program(P4INFO, program.encode()), range(CONNECTION_CASES)), None)
    return f"case {found.number}: {found.kind}" if found else ""


def chosen(names: list[str], arguments: argparse.Namespace) -> list[str]:
    """All, those with a text in their name, or a sample of each kind."""
    if arguments.only:
        return [name for name in names if any(text in name for text in arguments.only)]
    return names if arguments.all else names[::SAMPLE]


def main() -> int:
    parser = argparse.ArgumentParser(description="Have the packet tests find mistakes in the program.")
    parser.add_argument("--all", action="store_true", help=f"all mutants, not one of {SAMPLE}")
    parser.add_argument("--only", metavar="TEXT", nargs="+", help="those with one of these in their name")
    parser.add_argument("--renew", action="store_true", help="look for a test that finds what the model does not")
    parser.add_argument(
        "--benches", type=int, default=min(4, os.cpu_count() or 1), help="side by side; by default %(default)s"
    )
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    names = [name for name, _ in mutants(json.loads(PROGRAM.read_text()))]
    told = tomllib.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    killed, survive = told.get("killed", {}), told.get("survive", {})
    began = time.monotonic()
    todo = chosen(names, arguments)
    tasks: Any = multiprocessing.Queue()
    answers: Any = multiprocessing.Queue()
    for name in todo:
        tasks.put(name)
    workers = [
        multiprocessing.Process(target=work, args=(number, tasks, answers, killed, arguments.renew), daemon=True)
        for number in range(arguments.benches)
    ]
    for worker in workers:
        worker.start()
    wrong: list[str] = []
    found: dict[str, str] = {}
    sound = 0
    while len(found) < len(todo) or sound < len(workers):
        name, killer, how = answers.get(timeout=600)
        if not name:
            sound += 1
            if killer:
                wrong.append(f"the program itself fails: {how}")
            continue
        found[name] = killer
        print(f"{'killed' if killer else 'SURVIVES'}: {name}{f' by {killer}: {how}' if killer else ''}", flush=True)
        if arguments.renew and killer not in ("", MODEL):
            print(f'"{name}" = "{killer}"')
        if name in survive and killer:
            wrong.append(f"killers.toml says that this survives, and {killer} kills it: {name}")
        elif name not in survive and not killer:
            wrong.append(f"nothing finds: {name}")
    wrong += [f"killers.toml names what is no mutant: {name}" for name in (*killed, *survive) if name not in names]
    dead = sum(bool(killer) for killer in found.values())
    print(
        f"{len(names)} mutants, {len(todo)} tried: {dead} killed, {len(todo) - dead} survive; "
        f"{time.monotonic() - began:.0f} s"
    )
    (OUT / "found.json").write_text(json.dumps(found, indent=1))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
