# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.conformance`: the command line, and the run."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from rich.console import Console

from accesspoint.checks.conformance import report
from accesspoint.checks.conformance.fixture import PROGRAMS, Fixture, Place
from accesspoint.checks.conformance.server import OwnServer, Server, ServerError
from accesspoint.checks.conformance.suite import (
    FAIL,
    NOT_APPLICABLE,
    PASS,
    SECTIONS,
    Check,
    Failed,
    NotApplicable,
    Outcome,
    below,
    select,
    show,
)
from accesspoint.checks.harness.p4runtime import describe
from accesspoint.topologies import targets
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import LabError

EXPLANATION = """\
Checks. Each belongs to a section of the P4Runtime specification (9.1.2: action specification) or to a
group of v1model (v1.parser). It loads a small program of the suite's own, writes and reads over P4Runtime, sends
packets, and compares with what the specification says. `--list` shows all checks, `--section 9` those of one chapter.

Server. `--target apswitch` or `--target bmv2` starts one on veth pairs of its own (needs root, leaves nothing
behind). `--address` takes any server that runs already:

  python -m accesspoint.checks.conformance --address 192.0.2.1:9559 --port 1@veth3 --port 2@veth5 --port 3@veth7

It has to run v1model programs in BMv2's JSON (or name what it runs with --programs), and its CPU port has to be 510
(simple_switch_grpc and apswitch: `--cpu-port 510`). A port is named with the interface on its far end, where the suite
sends and receives raw frames (needs root). Without ports packets go in and out through the CPU port, as packet-out and
packet-in, and checks that need several ports are not applicable. The suite becomes primary with an election id above
all that the server has seen, and replaces the pipeline and all entries: do not point it at a switch in use.

Against another one. `--target apswitch --against bmv2` runs no checks: it gives both servers the same programs,
entries and generated packets, and compares byte for byte what leaves, then every counter. Differences without a known
reason are kept in out/conformance/differences-TARGET-OTHER/, with the trace of apswitch's reference.

Results. pass; fail, with the observation; n/a, with the reason, e.g.
an optional feature. Exit code: 0 no check failed and nothing differs without a reason, 1 at least
one did, 2 the run could not be made.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.conformance",
        description="Does a P4Runtime server do what the specification and v1model ask for?",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--target", choices=targets.TARGETS, help="start this server here")
    server.add_argument("--address", metavar="HOST:PORT", help="a server that runs already")
    server.add_argument("--list", action="store_true", help="list the checks and end")
    parser.add_argument("--port", metavar="N@IFACE", action="append", default=[], help="with --address; repeated")
    parser.add_argument("--device-id", type=int, default=1, metavar="N", help="of the server (default: 1)")
    parser.add_argument("--programs", type=Path, default=PROGRAMS, metavar="DIR", help="NAME.json, NAME.p4info.txtpb")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="use TLS; the certificate that signs the server's")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="the client's own certificate, for mutual TLS")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the key of --cert")
    parser.add_argument("--section", action="append", default=[], metavar="S", help="9, 9.1.2, v1, v1.hash; repeated")
    parser.add_argument("--only", metavar="TEXT", help="checks whose name or title contains it")
    parser.add_argument("--wait", type=float, default=5.0, metavar="S", help="for what must come (default: 5 s)")
    parser.add_argument("--name", help="what the result calls the server (default: the target, or 'server')")
    parser.add_argument(
        "--markdown", nargs="?", const=Path(), type=Path, metavar="FILE",
        help="also a page (default: docs/results/conformance-NAME.md; with --against docs/results/differences.md)",
    )  # fmt: skip
    against = parser.add_argument_group("with --against")
    against.add_argument("--against", choices=targets.TARGETS, help="compare --target with this one, packet by packet")
    against.add_argument("--packets", type=int, default=20_000, metavar="N", help="for each program (default: 20,000)")
    against.add_argument("--seed", type=int, default=1, metavar="N", help="of packets and entries (default: 1)")
    against.add_argument("--program", action="append", default=[], metavar="NAME", help="this one only; repeated")
    parser.add_argument("-v", "--verbose", action="store_true", help="report each check when it is done")
    options = parser.parse_args()
    if options.against:
        if not options.target:
            parser.error("--against compares two targets: name the first with --target")
        return own(lambda: compare(options))
    unknown = [key for key in options.section if not any(below(key, s) or below(s, key) for s in SECTIONS)]
    if unknown:
        parser.error(f"--section {unknown[0]} is unknown; there are {', '.join(SECTIONS)}")
    checks = select(options.section, options.only)
    if not checks:
        parser.error("no check is selected; --list shows them all")
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        for one in checks:
            console.print(f"{one.name:48} {one.title}", highlight=False, markup=False, no_wrap=True)
        return 0
    try:
        if options.address:
            return run(Server(options.name or "server", place(options)), checks, console, options)
    except (ServerError, LabError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    log = Path(f"out/conformance/{options.target}.log").resolve()
    return own(lambda: run(OwnServer(options.target, options.wait, log), checks, console, options))


def place(options: argparse.Namespace) -> Place:
    """Return the place of the server that the options name. Raises ServerError."""
    ports = {}
    for word in options.port:
        number, _, interface = word.partition("@")
        if not number.isdigit() or not interface:
            raise ServerError(f"--port {word} is not N@INTERFACE, as 1@veth1")
        ports[int(number)] = interface
    if not options.address.rpartition(":")[2].isdigit():
        raise ServerError(f"--address {options.address} is not HOST:PORT, as 127.0.0.1:9559")
    if bool(options.cert) != bool(options.key) or (options.cert and not options.ca):
        raise ServerError("--cert, --key and --ca belong together: name all three")
    credentials = None
    if options.ca:
        own = (options.key.read_bytes(), options.cert.read_bytes()) if options.cert else (None, None)
        credentials = grpc.ssl_channel_credentials(options.ca.read_bytes(), *own)
    return Place(
        options.address, options.device_id, targets.CPU_PORT, ports, credentials, options.wait, options.programs
    )


def own(work: Callable[[], int]) -> int:
    """Do the work in a network of its own, for servers that are started here."""

    def within() -> int:
        try:
            contain.own_network()
            return work()
        except (ServerError, LabError, NotApplicable, FileNotFoundError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2

    try:
        return contain.run(within)
    except contain.NotPermitted as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compare(options: argparse.Namespace) -> int:
    """Compare two targets, packet by packet."""
    try:
        from accesspoint.checks.conformance.against import programs, run
    except ImportError:
        raise ServerError("--against takes this project's programs: run it in a checkout") from None
    names = [case.name for case in programs.CASES]
    if unknown := set(options.program) - set(names):
        raise ServerError(f"--program {min(unknown)} is unknown; there are {', '.join(names)}")
    return run.run(options.target, options.against, options.program, options.packets, options.seed, options.markdown)


def run(server: Server, checks: list[Check], console: Console, options: argparse.Namespace) -> int:
    """Check a server and print the result."""
    name = options.name or server.name
    with server:
        outcomes = ask(server, checks, console if options.verbose else None)
    report.show(console, outcomes, options.verbose or console.is_terminal, f"{name}, {server.version}")
    if options.markdown:
        path = options.markdown if options.markdown.name else Path(f"docs/results/conformance-{name}.md")
        report.write(path, outcomes, name, server.version)
    return int(any(one.status == FAIL for one in outcomes))


def ask(server: Server, checks: list[Check], console: Console | None) -> list[Outcome]:
    """The outcomes in the order of the checks; those that need a server without a pipeline are asked first."""
    fixture = Fixture(server.place)
    outcomes: dict[Check, Outcome] = {}
    for check in sorted(checks, key=lambda one: not one.anew):
        outcomes[check] = outcome = ask_one(server, fixture, check)
        if console:
            console.print(
                f"{outcome.status:5} {check.name} ({outcome.seconds:.2f} s) {outcome.reason}", highlight=False
            )
    return [outcomes[check] for check in checks]


def ask_one(server: Server, fixture: Fixture, check: Check) -> Outcome:
    """Run a check and return its outcome, even when the server fails."""
    begin = time.monotonic()
    status, reason = PASS, ""
    try:
        begin_check(server, fixture, check)
        check.run(fixture)
        if check.program:
            fixture.nothing_more()
    except NotApplicable as why:
        status, reason = NOT_APPLICABLE, str(why)
    except (Failed, AssertionError) as why:
        status, reason = FAIL, str(why) or "an assertion failed"
    except grpc.RpcError as failure:
        status, reason = FAIL, describe(failure)
    except OSError as error:
        status, reason = FAIL, f"packets cannot be sent: {error}"
    ended = server.ended()
    if ended:
        status, reason = FAIL, f"{ended}{f' ({reason})' if reason else ''}"
    with contextlib.suppress(grpc.RpcError):
        fixture.end()
    if ended:
        server.revive()
    return Outcome(check, status, show(reason), time.monotonic() - begin)


def begin_check(server: Server, fixture: Fixture, check: Check) -> None:
    """A server that an earlier check has left unable to take a program is started again, where that can be done."""
    try:
        fixture.begin(check)
    except (grpc.RpcError, AssertionError):
        fixture.end()
        if not server.restarts:
            raise
        server.revive()
        fixture.begin(check)


if __name__ == "__main__":
    sys.exit(main())
