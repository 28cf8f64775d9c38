# SPDX-License-Identifier: Apache-2.0
"""Action profiles, one-shot groups, value sets and initial entries (P4Runtime 1.4, 9.2, 9.6 and 9.1)."""

from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code

from accesspoint.checks.harness.p4runtime import Client, Program, binary, delete, exact, insert, modify, update

OK = rpc_code.OK
INVALID = rpc_code.INVALID_ARGUMENT
EXISTS = rpc_code.ALREADY_EXISTS
MISSING = rpc_code.NOT_FOUND
FULL = rpc_code.RESOURCE_EXHAUSTED
IN_USE = rpc_code.FAILED_PRECONDITION

PROGRAMS = Path(__file__).parents[1] / "testdata/programs"


def start(connect: Any, name: str) -> Client:
    program = Program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")
    client = connect(program=program).become_primary()
    client.push(program=program)
    return client


@pytest.fixture
def client(connect: Any) -> Client:
    return start(connect, "profiles")


def call(client: Client, value: int) -> p4r.Action:
    return client.program.entry("started", action=("answer", value)).action.action


def member(client: Client, number: int, value: int, profile: str = "selector") -> p4r.ActionProfileMember:
    profile_id = client.program.id("action_profiles", profile)
    return p4r.ActionProfileMember(action_profile_id=profile_id, member_id=number, action=call(client, value))


def group(client: Client, number: int, weights: dict[int, int], **fields: Any) -> p4r.ActionProfileGroup:
    members = [p4r.ActionProfileGroup.Member(member_id=m, weight=w) for m, w in weights.items()]
    profile_id = client.program.id("action_profiles", "selector")
    return p4r.ActionProfileGroup(action_profile_id=profile_id, group_id=number, members=members, **fields)


def entry(client: Client, table: str, key: int, **action: Any) -> p4r.TableEntry:
    return p4r.TableEntry(
        table_id=client.program.id("tables", table), match=[exact(1, key)], action=p4r.TableAction(**action)
    )


def test_members_groups_and_entries_are_read_as_they_were_written(client: Client) -> None:
    members = [member(client, number, 10 * number) for number in (1, 2, 3)]
    groups = [group(client, 1, {1: 1, 2: 3}, max_size=4), group(client, 9, {})]
    entries = [
        entry(client, "chosen", 1, action_profile_group_id=1),
        entry(client, "chosen", 2, action_profile_member_id=3),
    ]
    updates = [update("INSERT", action_profile_member=m) for m in members]
    updates += [update("INSERT", action_profile_group=g) for g in groups]
    assert client.outcomes(*updates, *map(insert, entries)) == [OK] * 7
    assert client.read(action_profile_member=p4r.ActionProfileMember()) == members
    assert (
        client.read(
            action_profile_member=p4r.ActionProfileMember(action_profile_id=members[0].action_profile_id, member_id=2)
        )
        == members[1:2]
    )
    assert client.read(action_profile_group=p4r.ActionProfileGroup()) == groups
    assert client.read(table_entry=p4r.TableEntry(table_id=entries[0].table_id)) == entries

    assert (
        client.outcomes(
            update("INSERT", action_profile_member=members[0]),
            update("DELETE", action_profile_member=members[0]),
            update("DELETE", action_profile_member=members[2]),
            update("DELETE", action_profile_group=groups[0]),
            update("MODIFY", action_profile_member=member(client, 7, 1)),
            update(
                "MODIFY",
                action_profile_member=p4r.ActionProfileMember(
                    action_profile_id=members[0].action_profile_id, member_id=1
                ),
            ),
            update("MODIFY", action_profile_group=group(client, 1, {1: 0}, max_size=4)),
            update("MODIFY", action_profile_group=group(client, 1, {7: 1}, max_size=4)),
            update("MODIFY", action_profile_group=group(client, 1, {1: 1}, max_size=5)),
            update("MODIFY", action_profile_group=group(client, 1, {1: 5}, max_size=4)),
            insert(entry(client, "chosen", 3, action_profile_group_id=7)),
            insert(entry(client, "chosen", 3, action=call(client, 1))),
            insert(entry(client, "plain", 3, action_profile_group_id=1)),
            insert(entry(client, "started", 3, action_profile_member_id=1)),
        )
        == [EXISTS, IN_USE, IN_USE, IN_USE, MISSING, INVALID, INVALID, MISSING, INVALID, FULL, MISSING] + [INVALID] * 3
    )
    assert client.read(action_profile_group=p4r.ActionProfileGroup()) == groups

    # All of it survives a change of the program.
    client.push("RECONCILE_AND_COMMIT", client.program)
    assert client.read(action_profile_member=p4r.ActionProfileMember()) == members
    assert client.read(action_profile_group=p4r.ActionProfileGroup()) == groups
    assert client.read(table_entry=p4r.TableEntry(table_id=entries[0].table_id)) == entries
    removals = [update("DELETE", action_profile_group=g) for g in groups]
    removals += [update("DELETE", action_profile_member=m) for m in members]
    assert client.outcomes(*map(delete, entries), *removals) == [OK] * 7


def test_a_one_shot_group_is_read_as_it_was_written(client: Client) -> None:
    def shot(*actions: p4r.ActionProfileAction) -> p4r.TableEntry:
        return entry(
            client, "chosen", 1, action_profile_action_set=p4r.ActionProfileActionSet(action_profile_actions=actions)
        )

    twice = p4r.ActionProfileAction(action=call(client, 1), weight=2)
    first = shot(twice, twice)
    assert client.outcomes(insert(first)) == [OK]
    assert client.read(table_entry=p4r.TableEntry(table_id=first.table_id)) == [first]
    assert client.read(action_profile_member=p4r.ActionProfileMember()) == []
    second = shot(p4r.ActionProfileAction(action=call(client, 2), weight=8))
    assert client.outcomes(
        modify(shot(p4r.ActionProfileAction(action=call(client, 2)))),
        modify(shot(p4r.ActionProfileAction(action=call(client, 2), weight=9))),
        modify(shot(p4r.ActionProfileAction(action=call(client, 2), weight=1, watch_port=binary(77)))),
        insert(entry(client, "chosen", 2, action_profile_member_id=1)),
        modify(second),
    ) == [INVALID, FULL, INVALID, INVALID, OK]
    assert client.read(table_entry=p4r.TableEntry(table_id=first.table_id)) == [second]
    assert client.outcomes(delete(second)) == [OK]


def test_initial_entries_can_be_written(client: Client) -> None:
    table = p4r.TableEntry(table_id=client.program.id("tables", "started"))
    first, second = client.read(table_entry=table)
    assert not first.is_const and not second.is_const
    assert client.outcomes(insert(first), delete(first)) == [EXISTS, OK]
    # Deleted entries stay away, also from a new pipeline that keeps the state.
    client.push("RECONCILE_AND_COMMIT", client.program)
    assert client.read(table_entry=table) == [second]
    client.push("VERIFY_AND_COMMIT", client.program)
    assert client.read(table_entry=table) == [first, second]


def test_value_sets_are_written_whole(connect: Any) -> None:
    client = start(connect, "variable")

    def value_set(name: str, *members: list[p4r.FieldMatch]) -> p4r.ValueSetEntry:
        entries = [p4r.ValueSetMember(match=match) for match in members]
        return p4r.ValueSetEntry(value_set_id=client.program.id("value_sets", name), members=entries)

    ways = value_set("ways", [exact(1, 9)], [exact(1, 10)])
    pairs = value_set("pairs", [exact(1, 9), exact(2, 0xFFFFF)])
    assert client.outcomes(update("MODIFY", value_set_entry=ways), update("MODIFY", value_set_entry=pairs)) == [OK, OK]
    by_id = {entry.value_set_id: entry for entry in client.read(value_set_entry=p4r.ValueSetEntry())}
    assert by_id == {ways.value_set_id: ways, pairs.value_set_id: pairs}
    five = [[exact(1, number)] for number in range(5)]
    assert client.outcomes(
        update("INSERT", value_set_entry=ways),
        update("DELETE", value_set_entry=ways),
        update("MODIFY", value_set_entry=value_set("ways", [exact(1, 9)], [exact(1, 9)])),
        update("MODIFY", value_set_entry=value_set("ways", *five)),
        update("MODIFY", value_set_entry=value_set("pairs", [exact(1, 9)])),
        update("MODIFY", value_set_entry=value_set("ways", [exact(1, 256)])),
    ) == [INVALID, INVALID, EXISTS, FULL, INVALID, rpc_code.OUT_OF_RANGE]
    assert client.read(value_set_entry=p4r.ValueSetEntry(value_set_id=ways.value_set_id)) == [ways]
    assert client.outcomes(update("MODIFY", value_set_entry=value_set("ways"))) == [OK]
    assert client.read(value_set_entry=p4r.ValueSetEntry(value_set_id=ways.value_set_id)) == [value_set("ways")]
