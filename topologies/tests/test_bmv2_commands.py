# SPDX-License-Identifier: Apache-2.0
"""BMv2's runtime commands as P4Runtime's entities, of a program without a P4Info."""

import json
import re
from pathlib import Path

import pytest
from finsy import P4Schema

from accesspoint.topologies.bmv2_commands import CommandError, entities, number, p4info_of
from accesspoint.topologies.requirements import ROOT
from accesspoint.topologies.tests.conftest import Start
from accesspoint.topologies.tests.mininet_scripts import played

PROGRAM = ROOT / "checks/conformance/programs/entities.json"
COMMANDS = """
# One of each kind of key
table_add exact_table count_and_say 0x10 7 => 2
table_add lpm_table say 10.0.0.1/24 => 1
table_add lpm_table EntitiesIngress.say_both 10.0.1.1 => 2 3
table_add ternary_table say 10.0.0.0&&&255.255.0.0 1 => 1 5

table_add range_table say 1->9 => 2 10
table_set_default lpm_table say 9
mc_mgrp_create 1
mc_node_create 0 1 2
mc_node_create 3 2
mc_node_associate 1 0
mc_node_associate 1 1
mirroring_add 5 2
"""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> P4Schema:
    file = tmp_path_factory.mktemp("p4info") / "p4info.txtpb"
    file.write_text(str(p4info_of(json.loads(PROGRAM.read_text()))))
    return P4Schema(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("0x1f", 31), ("10.0.0.1", 0x0A000001), ("00:00:00:00:01:02", 0x102), ("::1", 1)],
)
def test_number_of_an_address_or_a_number_is_its_value(text: str, value: int) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("register_write r 0 1", "line 1: 'register_write' is unknown: choose of table_add, "),
        ("table_add exact_table count_and_say 1 => 2", "line 1: .*table exact_table has 2 keys"),
        ("table_add exact_table count_and_say 1 1 =>", "line 1: .*action count_and_say has 1 parameters"),
        ("table_add exact_table count_and_say 1 1 2", "line 1: "),
        ("table_add nothing say 1 => 2", "line 1: "),
        ("mc_node_associate 1 0", "line 1: "),
    ],
)
def test_entities_of_a_command_that_cannot_be_done_name_its_line(schema: P4Schema, command: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        entities([command], schema)


@pytest.mark.usefixtures("privileged")
def test_p4_switch_with_a_file_of_commands_has_their_entries(start: Start, tmp_path: Path) -> None:
    commands = tmp_path / "commands.txt"
    commands.write_text(COMMANDS)
    output = played(
        start,
        f"""
s1 = switch(json="{PROGRAM}", switch_config="{commands}")
hosts({{}}, {{}}, to=s1)
net.start()
import asyncio
from finsy import P4CloneSessionEntry, P4MulticastGroupEntry, P4TableEntry, Switch, SwitchOptions
tables = [P4TableEntry(), P4TableEntry("lpm_table", is_default_action=True)]
async def entries():
    async with Switch("s1", s1.grpc, SwitchOptions(initial_election_id=1)) as client:
        async for entry in client.read([*tables, P4MulticastGroupEntry(), P4CloneSessionEntry()]):
            print("entry", entry)
asyncio.run(entries())
commands = open("{commands}", "w")
commands.write("table_add exact_table")
commands.close()
s1.stop(deleteIntfs=False)
s1.start([])
""",
    )
    entries = re.findall(r"^entry (.*)$", output, re.M)
    tables = [entry for entry in entries if "'say" in entry or "count_and_say" in entry]
    assert len(tables) == 6 and sum("is_default_action=True" in entry for entry in tables) == 1, output
    assert any("group_id=1, replicas=(1, 2, P4Replica(port=2, instance=3)" in entry for entry in entries)
    assert any("P4CloneSessionEntry" in entry for entry in entries)
    assert "LabError: s1: line 1: `table_add exact_table`: too few words, or too many" in output
