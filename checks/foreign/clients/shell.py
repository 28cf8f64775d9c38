# SPDX-License-Identifier: Apache-2.0
"""p4runtime-shell: sessions in its IPython shell that follow its README and its usage pages, step by step."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from accesspoint.checks.conformance.fixture import request_frame
from accesspoint.checks.foreign.case import Failed, case
from accesspoint.checks.foreign.stand import P4RUNTIME, Stand
from accesspoint.checks.harness.certificates import Authority
from accesspoint.topologies.requirements import ROOT

CLIENT = "p4runtime-shell 0.0.6"
PROGRAM = ROOT / "checks/conformance/programs/entities"
CONFIG = f"{PROGRAM}.p4info.txtpb,{PROGRAM}.json"
SOURCE = bytes.fromhex("020000000001")
WRONG = r"Error|Exception"
FRAME = f"bytes.fromhex('{request_frame(SOURCE, 0).hex()}')"


@dataclass(frozen=True)
class Step:
    """A line for the shell, and a pattern that its output has to have; without one the output must name no error."""

    line: str
    wanted: str = ""


def request(op: int, a: int = 0, b: int = 0, c: int = 0) -> Step:
    """Send a request frame into the pipeline: packet-out to port 0 is a packet from the CPU port."""
    frame = request_frame(SOURCE, op, a, b, c).hex()
    return Step(f"packet_out(payload=bytes.fromhex('{frame}'), egress_port='0').send()")


def until(condition: str) -> Step:
    """Wait until it holds; the case's time is the bound."""
    return Step(f"import time\nwhile not ({condition}): time.sleep(0.02)\n")


def converse(stand: Stand, steps: Sequence[Step], *options: str, address: str = P4RUNTIME) -> None:
    """Type the steps into a shell, and check what it prints after each. Raises Failed."""
    lines = [f"{step.line}\nprint('@@', {number})" for number, step in enumerate(steps)]
    output = stand.run(
        stand.python,
        *("-m", "p4runtime_sh", "--grpc-addr", address, "--device-id", "0", "--election-id", "0,1"),
        *(options or ("--config", CONFIG)),
        stdin="\n".join([*lines, "exit", ""]),
    )
    parts = re.split(r"@@ (\d+)", output)
    answers = {int(number): text for text, number in zip(parts[::2], parts[1::2], strict=False)}
    for number, step in enumerate(steps):
        if number not in answers:
            raise Failed(f"the shell ended before `{short(step.line)}`")
        said = answers[number]
        fits = re.search(step.wanted, said, re.S) if step.wanted else not re.search(WRONG, said)
        if not fits:
            problems = re.findall(rf"^.*(?:At index|\w(?:{WRONG}):).*$", said, re.M)
            raise Failed(f"`{short(step.line)}` answers {(problems[-1] if problems else said).strip()[:300]!r}")


def short(line: str) -> str:
    return line.strip().splitlines()[-1]


@case("shell-readme", CLIENT, 'README, "Example usage": tables, an entry inserted, read and deleted; Write from a file')
def readme(stand: Stand) -> None:
    write = stand.scratch / "write.txt"
    match = r'match { field_id: 1 lpm { value: "\x0b\x00\x00\x00" prefix_len: 8 } }'
    action = f'action {{ action {{ action_id: {identifier("say")} params {{ param_id: 1 value: "\\x07" }} }} }}'
    entry = f"table_entry {{ table_id: {identifier('lpm_table')} {match} {action} }}"
    write.write_text(f"updates {{ type: INSERT entity {{ {entry} }} }}")
    table = 'table_entry["EntitiesIngress.lpm_table"]'
    with stand.switch():
        converse(
            stand,
            [
                Step(
                    "tables",
                    r"EntitiesIngress\.exact_table.*EntitiesIngress\.lpm_table.*EntitiesIngress\.ternary_table",
                ),
                Step(
                    'tables["EntitiesIngress.lpm_table"]',
                    r'name: "EntitiesIngress.lpm_table".*match_type: LPM.*size: 16',
                ),
                Step("actions", r"EntitiesIngress\.say\b"),
                Step("counters", r"EntitiesIngress\.requests"),
                Step("direct_counters", r"EntitiesIngress\.exact_counter"),
                Step("meters", r"EntitiesIngress\.rates"),
                Step("action_profiles", r"EntitiesIngress\.group_selector"),
                Step(f'te = {table}(action="say")'),
                Step("te?", "Typical usage to insert a table entry"),
                Step('te.match["c"] = "10.0.0.0/16"', r"lpm \{.*prefix_len: 16"),
                Step('te.action["value"] = "10"', r"param_id: 1"),
                Step("te.insert"),
                Step(
                    f"for te in {table}.read():\n    print(te)\n",
                    r'"EntitiesIngress\.lpm_table".*value: "\\\\x0a\\\\x00\\\\x00\\\\x00"\s+prefix_len: 16.*'
                    r'"EntitiesIngress\.say".*\("value"\)\s+value: "\\\\x0a"',
                ),
                Step("te.insert", "ALREADY_EXISTS"),
                Step(f"{table}.read(lambda te: te.delete())"),
                Step(f"{table}.read(lambda te: print('left', te)); print('none')", r"^(?!.*left).*none"),
                Step("te.delete", "NOT_FOUND"),
                Step(f'Write "{write}"'),
                Step(f"{table}.read(lambda te: print(te))", r"prefix_len: 8.*value: \"\\\\x07\""),
                Step("APIVersion()", r"1\.\d+\.\d+"),
            ],
        )


@case(
    "shell-script", CLIENT, 'README, "Using p4runtime-shell in scripts": setup with FwdPipeConfig, TableEntry, teardown'
)
def script(stand: Stand) -> None:
    path = stand.scratch / "script.py"
    path.write_text(
        f"""import p4runtime_sh.shell as sh
sh.setup(device_id=0, grpc_addr="{P4RUNTIME}", election_id=(0, 1),
         config=sh.FwdPipeConfig(*"{CONFIG}".split(",")))
te = sh.TableEntry("EntitiesIngress.lpm_table")(action="say")
te.match["c"] = "10.1.0.0/16"
te.action["value"] = "11"
te.insert()
print("found", len(list(sh.TableEntry("EntitiesIngress.lpm_table").read())))
sh.teardown()
sh.setup(device_id=0, grpc_addr="{P4RUNTIME}", election_id=(0, 2))
print("again", len(list(sh.TableEntry("EntitiesIngress.lpm_table").read())))
sh.teardown()
"""
    )
    with stand.switch():
        said = stand.run(stand.python, path)
    if "found 1" not in said or "again 1" not in said:
        raise Failed(f"the script prints {said.strip()[-200:]!r}")


@case("shell-tls", CLIENT, 'README, "Mutual authentication": certificates of the client and of the server')
def tls(stand: Stand) -> None:
    authority = Authority(stand.scratch / "ca")
    (server, server_key), (client, client_key) = (authority.certificate(name) for name in ("localhost", "client"))
    options: tuple[str, ...] = (
        "--grpc-server-ssl",
        "--grpc-server-cacert",
        str(authority.ca),
        "--grpc-server-cert",
        str(server),
    )
    options += ("--grpc-server-key", str(server_key), "--grpc-server-with-client-auth")
    shell = ("--config", CONFIG, "--ssl", "--cacert", str(authority.ca))
    with stand.switch(server=options):
        steps = [Step("APIVersion()", r"1\.\d+\.\d+")]
        converse(
            stand, steps, *shell, "--cert", str(client), "--private-key", str(client_key), address="localhost:9559"
        )
        try:
            converse(stand, steps, *shell, address="localhost:9559")
        except Failed:
            return
        raise Failed("a client without a certificate is served")


@case("shell-oneshots", CLIENT, "usage/oneshots.md: one-shot action sets of a table with a selector")
def oneshots(stand: Stand) -> None:
    with stand.switch():
        converse(
            stand,
            [
                Step('t = table_entry["EntitiesIngress.selector_table"]'),
                Step('a = Action("NoAction")'),
                Step("t.oneshot.add(a)", r"action_profile_actions \{.*weight: 1"),
                Step('t.match["a"] = "10"', "exact"),
                Step("t.insert"),
                Step(
                    "t.read(lambda e: print(e))",
                    r'"EntitiesIngress\.selector_table".*value: "\\\\x0a".*action_profile_action_set \{'
                    r'\s+action_profile_actions \{\s+action \{\s+action_id: \d+ \("NoAction"\).*weight: 1',
                ),
                Step("t.delete"),
            ],
        )


@case("shell-packet-io", CLIENT, "usage/packet_io.md: packet-out to a port, packet-in by sniff")
def packet_io(stand: Stand) -> None:
    with stand.switch():
        converse(
            stand,
            [
                Step("p = packet_out()"),
                Step(f"p.payload = {FRAME}"),
                Step("p.metadata['egress_port'] = '1'"),
                Step("p", r'payload: .*metadata_id: 1 \("egress_port"\)\s+value: "(\\\\x00)?\\\\x01"'),
                Step("p.send"),
                Step(f"p = packet_out(payload={FRAME}, egress_port='2')"),
                Step("p.send"),
                request(24, a=5),
                until("packet_in.packet_in_queue.qsize()"),
                Step(
                    "packet_in.sniff(lambda m: print(m), timeout=0.2)",
                    r'payload: .*metadata_id: 1\s+value: "\\001\\376"',
                ),
            ],
        )
        for port in (1, 2):
            if stand.frames(port, 1)[0] != request_frame(SOURCE, 0):
                raise Failed(f"another frame than that of the packet-out left port {port}")


@case("shell-pre", CLIENT, "usage/pre.md: multicast groups and clone sessions, and the copies that they make")
def pre(stand: Stand) -> None:
    copies = ((1, 1), (1, 2), (2, 3))
    replicas = "".join(
        rf"(?=.*egress_port: {port}\s+instance: {instance}\b)" for port, instance in copies
    )  # in any order
    steps = []
    for entry in ("multicast_group_entry", "clone_session_entry"):
        steps += [
            Step(f"{entry[0]} = {entry}(1)"),
            Step(f"{entry[0]}.add(1, 1).add(1, 2).add(2, 3)", replicas),
            Step(f"{entry[0]}.insert"),
            Step(f"{entry}(1).read(lambda e: print(e))", replicas),
        ]
    steps += [
        request(20, b=1),
        request(21, b=1),
        request(24),
        until("packet_in.packet_in_queue.qsize() >= 2"),  # the original of the clone, and the last
        Step("m.delete"),
        Step("multicast_group_entry(0).read(lambda e: print('left', e)); print('none')", r"^(?!.*left).*none"),
        Step("c.delete"),
    ]
    with stand.switch():
        converse(stand, steps)
        for port, count in ((1, 4), (2, 2)):
            stand.frames(port, count)


@case("shell-counters", CLIENT, "usage/read_table_entry_counter.md: counter data of two entries after traffic")
def counters(stand: Stand) -> None:
    table = 'table_entry["EntitiesIngress.exact_table"]'
    steps = []
    for number in (1, 2):
        steps += [
            Step(f'te = {table}(action="EntitiesIngress.count_and_say")'),
            Step(f'te.match["a"] = ("{number}")'),
            Step('te.match["b"] = ("1")'),
            Step(f'te.action["value"] = ("{number}")'),
            Step("te.insert()"),
        ]
    steps += [request(1, a=1, b=1), request(1, a=1, b=1), request(1, a=2, b=1), request(24)]
    frame = len(request_frame(SOURCE, 1)) + 2  # and the header of a packet-out
    steps += [
        until("packet_in.packet_in_queue.qsize() >= 4"),
        Step(f"te = {table}"),
        Step("te.counter_data.byte_count = 0"),
        Step(
            "for x in te.read(): print(x.counter_data)\n",
            rf"byte_count: {2 * frame}\s+packet_count: 2.*packet_count: 1",
        ),
        Step('dc = direct_counter_entry["EntitiesIngress.exact_counter"]'),
        Step("dc.read(lambda e: print(e))", "packet_count: 2"),
        request(15, a=3),
        request(24),
        until("packet_in.packet_in_queue.qsize() >= 6"),
        Step('c = counter_entry["EntitiesIngress.requests"]'),
        Step("c.read(lambda e: print('index', e.index, e.packet_count))", r"index 3 1"),
        Step("c.index = 3"),
        Step("c.packet_count = 40"),
        Step("c.modify"),
        Step("for e in c.read(): print('now', e.index, e.packet_count)\n", r"now 3 40"),
    ]
    with stand.switch():
        converse(stand, steps)


@case(
    "shell-entities",
    CLIENT,
    'README, "Available commands": members, groups, meters, default entries, digests, idle timeouts',
)
def entities(stand: Stand) -> None:
    exact = 'table_entry["EntitiesIngress.exact_table"]'
    steps = [
        Step('m = action_profile_member["EntitiesIngress.group_selector"](member_id=1, action="say")'),
        Step('m.action["value"] = "5"'),
        Step("m.insert"),
        Step('g = action_profile_group["EntitiesIngress.group_selector"](group_id=1)'),
        Step("g.add(member_id=1, weight=2)", "weight: 2"),
        Step("g.max_size = 4"),
        Step("g.insert"),
        Step("g.read(lambda e: print(e))", r"group_id: 1.*member_id: 1\s+weight: 2"),
        Step('t = table_entry["EntitiesIngress.selector_table"](group_id=1)'),
        Step('t.match["a"] = "3"'),
        Step("t.insert"),
        Step("t.read(lambda e: print(e))", "action_profile_group_id: 1"),
        Step("m.delete", "At index 0"),
        Step("t.delete"),
        Step("g.delete"),
        Step("m.delete"),
        Step('e = meter_entry["EntitiesIngress.rates"](index=2, cir=10, cburst=20, pir=100, pburst=200)'),
        Step("e.modify"),
        Step("e.read(lambda e: print(e))", r"cir: 10\s+cburst: 20\s+pir: 100\s+pburst: 200"),
        Step('d = table_entry["EntitiesIngress.ternary_table"](action="say", is_default=True)'),
        Step('d.action["value"] = "9"'),
        Step("d.modify"),
        Step("for x in d.read(): print(x)\n", r"is_default_action: true"),
        Step(f'te = {exact}(action="count_and_say")'),
        Step('te.match.set(a="1", b="1")'),
        Step('te.action["value"] = "1"'),
        Step("te.idle_timeout_ns = 100000000"),
        Step("te.insert"),
        Step("te.modify"),
        Step('dm = direct_meter_entry["EntitiesIngress.exact_meter"]'),
        Step('dm.table_entry.match.set(a="1", b="1")'),
        Step("dm.cir = 1; dm.cburst = 2; dm.pir = 3; dm.pburst = 4"),
        Step("dm.modify"),
        Step("dm.read(lambda e: print(e))", r"cir: 1\s+cburst: 2\s+pir: 3\s+pburst: 4"),
        until("idle_timeout_notification.notification_queue.qsize()"),
        Step(
            "idle_timeout_notification.sniff(lambda m: print(m), timeout=0.1)", r"idle_timeout_notification|table_entry"
        ),
        Step("te.delete"),
        Step('d = digest_entry["source_t"]'),
        Step("d.ack_timeout_ns = 1000000000"),
        Step("d.max_timeout_ns = 0"),
        Step("d.max_list_size = 1"),
        Step("d.insert"),
        request(19, a=1, b=2, c=3),
        until("digest_list.digest_list_queue.qsize()"),
        Step("digest_list.sniff(lambda m: print(m), timeout=0.1)", r"struct"),
        Step("d.delete"),
    ]
    with stand.switch():
        converse(stand, steps)


def identifier(name: str) -> int:
    """Return the id of a table or an action of the program."""
    text = PROGRAM.with_suffix(".p4info.txtpb").read_text()
    found = re.search(rf'id: (\d+)\s+name: "EntitiesIngress\.{name}"', text)
    assert found, name
    return int(found[1])
