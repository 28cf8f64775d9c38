# SPDX-License-Identifier: Apache-2.0
"""Section 9.2: action profiles and selectors, with members and groups and in one shot."""

from collections import Counter
from typing import Any

import grpc
from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail
from accesspoint.checks.harness.p4runtime import binary, exact

INVALID, EXISTS, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
FULL, IN_USE = rpc_code.RESOURCE_EXHAUSTED, rpc_code.FAILED_PRECONDITION
PROFILE, SELECTOR = 13, 14  # requests
FLOWS = 200


def call(fixture: Fixture, value: int, hit: int | None = None) -> p4r.Action:
    action = ("say", value) if hit is None else ("say_both", value, hit)
    return fixture.entry("lpm_table", action=action).action.action


def member(fixture: Fixture, number: int, value: int, profile: str = "group_selector") -> p4r.ActionProfileMember:
    profile_id = fixture.program.id("action_profiles", profile)
    return p4r.ActionProfileMember(action_profile_id=profile_id, member_id=number, action=call(fixture, value))


def group(
    fixture: Fixture, number: int, weights: dict[int, int], max_size: int = 8, **fields: Any
) -> p4r.ActionProfileGroup:
    members = [p4r.ActionProfileGroup.Member(member_id=m, weight=w, **fields) for m, w in weights.items()]
    profile_id = fixture.program.id("action_profiles", "group_selector")
    return p4r.ActionProfileGroup(action_profile_id=profile_id, group_id=number, members=members, max_size=max_size)


def entry(fixture: Fixture, table: str, key: int, **action: Any) -> p4r.TableEntry:
    made = fixture.entry(table, [exact(1, key)])
    made.action.CopyFrom(p4r.TableAction(**action))
    return made


def shot(fixture: Fixture, key: int, *parts: p4r.ActionProfileAction) -> p4r.TableEntry:
    actions = p4r.ActionProfileActionSet(action_profile_actions=parts)
    return entry(fixture, "selector_table", key, action_profile_action_set=actions)


def part(fixture: Fixture, value: int, weight: int = 1, **fields: Any) -> p4r.ActionProfileAction:
    return p4r.ActionProfileAction(action=call(fixture, value), weight=weight, **fields)


def chosen(fixture: Fixture) -> Counter[int]:
    """The answers of many flows of key 1."""
    return Counter(one.value for one in fixture.ask_all(SELECTOR, [(1, 0, flow * 0x01010101) for flow in range(FLOWS)]))


def with_members(fixture: Fixture) -> None:
    """Three members of the selector. Raises NotApplicable where groups are not offered."""
    try:
        fixture.insert(*(member(fixture, number, 10 * number) for number in (1, 2, 3)))
    except grpc.RpcError as failure:
        if failure.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise NotApplicable("the server has one-shot programming only (UNIMPLEMENTED)") from None
        raise


@check("9.2.1", "an entry runs the action of its member, also when the member is modified")
def member_action(fixture: Fixture) -> None:
    fixture.insert(member(fixture, 1, 10, "profile"))
    fixture.insert(entry(fixture, "profile_table", 1, action_profile_member_id=1))
    answer = fixture.ask(PROFILE, 1)
    expect((answer.value, answer.hit), (10, 1), "the member's answer, and its hit")
    fixture.modify(member(fixture, 1, 11, "profile"))
    expect(fixture.ask(PROFILE, 1).value, 11, "the modified member's answer")
    expect(fixture.ask(PROFILE, 2).value, 0, "the answer without an entry")


@check("9.2.1", "members are read one by one, by profile, and all together")
def read_members(fixture: Fixture) -> None:
    one, two, other = member(fixture, 1, 10), member(fixture, 2, 20), member(fixture, 1, 30, "profile")
    fixture.insert(one, two, other)
    profile_id = one.action_profile_id
    fixture.found(p4r.ActionProfileMember(), [one, two, other], "all members")
    fixture.found(p4r.ActionProfileMember(action_profile_id=profile_id), [one, two], "members of one profile")
    fixture.found(p4r.ActionProfileMember(action_profile_id=profile_id, member_id=2), [two], "one member")


@check("9.2.1", "a member that is there cannot be inserted; one that is not, neither modified nor deleted")
def member_errors(fixture: Fixture) -> None:
    one = member(fixture, 1, 10, "profile")
    fixture.refused("MODIFY", one, MISSING, why="a member that is not there")
    fixture.refused("DELETE", one, MISSING, why="a member that is not there")
    fixture.insert(one)
    fixture.refused("INSERT", one, EXISTS, why="a member that is there")
    bare = p4r.ActionProfileMember(action_profile_id=one.action_profile_id, member_id=2)
    fixture.refused("INSERT", bare, INVALID, why="a member without an action")


@check("9.2.1", "a full profile answers RESOURCE_EXHAUSTED")
def full_profile(fixture: Fixture) -> None:
    fixture.insert(*(member(fixture, number, number, "profile") for number in range(1, 5)))
    fixture.refused("INSERT", member(fixture, 5, 5, "profile"), FULL, why="a fifth member of a profile of four")


@check("9.2.1", "a member in use cannot be deleted")
def member_in_use(fixture: Fixture) -> None:
    one = member(fixture, 1, 10, "profile")
    fixture.insert(one)
    fixture.insert(entry(fixture, "profile_table", 1, action_profile_member_id=1))
    fixture.refused("DELETE", one, IN_USE, why="a member that an entry uses")
    fixture.delete(entry(fixture, "profile_table", 1, action_profile_member_id=1))
    fixture.delete(one)


@check("9.2.1", "an entry with a member that is not there is NOT_FOUND")
def missing_member(fixture: Fixture) -> None:
    one = entry(fixture, "profile_table", 1, action_profile_member_id=77)
    fixture.refused("INSERT", one, MISSING, why="an entry with an unknown member")


@check("9.1.3", "the default entry of a table with a profile or selector is NoAction, and constant")
def indirect_default(fixture: Fixture) -> None:
    for table in ("profile_table", "selector_table"):
        wanted = fixture.entry(table, action=("NoAction",), is_default_action=True)
        found = fixture.read(fixture.entry(table, is_default_action=True))
        expect([one.action for one in found], [wanted.action], f"the default action of {table}")
        other = fixture.entry(table, action=("say", 5), is_default_action=True)
        fixture.refused("MODIFY", other, rpc_code.PERMISSION_DENIED, INVALID, why=f"the default entry of {table}")


@check("9.2.2", "a group spreads flows over its members, by their weights")
def spreads(fixture: Fixture) -> None:
    with_members(fixture)
    fixture.insert(group(fixture, 1, {1: 1, 2: 3}))
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_group_id=1))
    count = chosen(fixture)
    expect(set(count), {10, 20}, "answers of the group's flows")
    if count[20] <= count[10]:
        fail(f"of {FLOWS} flows {count[10]} took the member of weight 1 and {count[20]} that of weight 3")


@check("9.2.2", "a flow stays with its member")
def stays(fixture: Fixture) -> None:
    with_members(fixture)
    fixture.insert(group(fixture, 1, {1: 1, 2: 1, 3: 1}))
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_group_id=1))
    for flow in (1, 0x0A000001, 0xFFFFFFFF):
        answers = {fixture.ask(SELECTOR, 1, 0, flow).value for _ in range(10)}
        expect(len(answers), 1, f"members that flow {flow:#x} took")


@check("9.2.2", "MODIFY changes a group's members")
def modify_group(fixture: Fixture) -> None:
    with_members(fixture)
    fixture.insert(group(fixture, 1, {1: 1, 2: 1}))
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_group_id=1))
    fixture.modify(group(fixture, 1, {3: 1}))
    expect(set(chosen(fixture)), {30}, "answers of the modified group's flows")
    fixture.found(p4r.ActionProfileGroup(), [group(fixture, 1, {3: 1})], "the modified group")


@check("9.2.2", "an entry of a selector may name a member")
def member_of_selector(fixture: Fixture) -> None:
    with_members(fixture)
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_member_id=2))
    expect(fixture.ask(SELECTOR, 1).value, 20, "the member's answer")


@check("9.2.2", "groups are read as they were written")
def read_groups(fixture: Fixture) -> None:
    with_members(fixture)
    one, two = group(fixture, 1, {1: 1, 2: 3}), group(fixture, 9, {})
    fixture.insert(one, two)
    fixture.found(p4r.ActionProfileGroup(), [one, two], "all groups")
    by_id = p4r.ActionProfileGroup(action_profile_id=one.action_profile_id, group_id=9)
    fixture.found(by_id, [two], "one group")


@check("9.2.2", "group errors: there already, not there, unknown member, in use")
def group_errors(fixture: Fixture) -> None:
    with_members(fixture)
    one = group(fixture, 1, {1: 1})
    fixture.refused("MODIFY", one, MISSING, why="a group that is not there")
    fixture.refused("DELETE", one, MISSING, why="a group that is not there")
    fixture.refused("INSERT", group(fixture, 1, {77: 1}), MISSING, why="a group with an unknown member")
    fixture.insert(one)
    fixture.refused("INSERT", one, EXISTS, why="a group that is there")
    fixture.refused("DELETE", member(fixture, 1, 10), IN_USE, why="a member that a group has")
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_group_id=1))
    fixture.refused("DELETE", one, IN_USE, why="a group that an entry uses")
    missing = entry(fixture, "selector_table", 2, action_profile_group_id=77)
    fixture.refused("INSERT", missing, MISSING, why="an entry with an unknown group")


@check("9.2.2", "weight 0, a member twice, another max_size and more weight than it are refused")
def wrong_groups(fixture: Fixture) -> None:
    with_members(fixture)
    fixture.refused("INSERT", group(fixture, 1, {1: 0}), INVALID, why="a group with weight 0")
    twice = group(fixture, 1, {1: 1})
    twice.members.add(member_id=1, weight=1)
    fixture.refused("INSERT", twice, INVALID, why="a group with a member twice")
    fixture.insert(group(fixture, 1, {1: 1}))
    fixture.refused("MODIFY", group(fixture, 1, {1: 1}, max_size=7), INVALID, why="a group with another max_size")
    fixture.refused("MODIFY", group(fixture, 1, {1: 0}), INVALID, why="a group with weight 0")
    fixture.refused("MODIFY", group(fixture, 1, {77: 1}), MISSING, why="a group with an unknown member")
    fixture.refused("MODIFY", group(fixture, 1, {1: 9}), FULL, INVALID, why="weight 9 in a group of 8")
    fixture.found(p4r.ActionProfileGroup(), [group(fixture, 1, {1: 1})], "the group after what was refused")


@check("9.2.2", "a watched port is a port that there is, and is read as it was written")
def watch_port(fixture: Fixture) -> None:
    with_members(fixture)
    port, unsupported = max([fixture.home, *fixture.place.ports]), rpc_code.UNIMPLEMENTED
    missing = group(fixture, 1, {1: 1}, watch_port=binary(77))
    fixture.refused("INSERT", missing, INVALID, unsupported, why="a group that watches a port that is not there")
    if fixture.place.ports:
        watching = group(fixture, 1, {1: 1, 2: 1}, watch_port=binary(port))
        fixture.insert(watching)
        fixture.found(p4r.ActionProfileGroup(), [watching], "the group with watched ports")


@check("9.2.2", "a member whose watched port is down is not chosen, until it is up again", ports=2)
def port_down(fixture: Fixture) -> None:
    with_members(fixture)
    port = list(fixture.place.ports)[1]
    watching = group(fixture, 1, {1: 1, 2: 1})
    watching.members[0].watch_port = binary(port)
    fixture.insert(watching)
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_group_id=1))
    expect(set(chosen(fixture)), {10, 20}, "answers of flows while the port is up")
    with fixture.down(port):
        fixture.until(lambda: set(chosen(fixture)) == {20}, "flows take the member without a watched port only")
    fixture.until(lambda: set(chosen(fixture)) == {10, 20}, "flows take both members when the port is up again")


@check("9.2.3", "a one-shot group spreads flows, and is read as it was written")
def one_shot(fixture: Fixture) -> None:
    one = shot(fixture, 1, part(fixture, 1), part(fixture, 2, 3), part(fixture, 2))
    fixture.insert(one)
    fixture.found(fixture.entry("selector_table"), [one], "the one-shot entry")
    expect(set(chosen(fixture)), {1, 2}, "answers of its flows")


@check("9.2.3", "MODIFY replaces a one-shot group, DELETE takes it away with its members")
def one_shot_changes(fixture: Fixture) -> None:
    fixture.insert(shot(fixture, 1, *(part(fixture, value) for value in range(1, 7))))
    fixture.modify(shot(fixture, 1, part(fixture, 9, 2)))
    expect(set(chosen(fixture)), {9}, "answers of the modified entry's flows")
    fixture.delete(shot(fixture, 1))
    fixture.insert(shot(fixture, 2, *(part(fixture, value) for value in range(1, 9))))
    expect(fixture.ask(SELECTOR, 1).value, 0, "the answer after DELETE")


@check("9.2.3", "weight 0, more weight than the selector allows and a missing watched port are refused")
def wrong_one_shot(fixture: Fixture) -> None:
    fixture.refused("INSERT", shot(fixture, 1, part(fixture, 1, 0)), INVALID, why="a one-shot action of weight 0")
    too_much = shot(fixture, 1, part(fixture, 1, 5), part(fixture, 2, 4))
    fixture.refused("INSERT", too_much, INVALID, FULL, why="one-shot actions of weight 9 in groups of 8")
    watching = shot(fixture, 1, part(fixture, 1, watch_port=binary(77)))
    unsupported = rpc_code.UNIMPLEMENTED
    fixture.refused("INSERT", watching, INVALID, unsupported, why="a one-shot action that watches a missing port")


@check("9.2.3", "a selector's entries are either one-shot or of members and groups")
def not_both(fixture: Fixture) -> None:
    with_members(fixture)
    fixture.insert(entry(fixture, "selector_table", 1, action_profile_member_id=1))
    fixture.refused(
        "INSERT", shot(fixture, 2, part(fixture, 1)), INVALID, why="a one-shot entry beside one with a member"
    )


@check("9.2.3", "beside one-shot entries a selector has no members and no groups of its own")
def nothing_beside(fixture: Fixture) -> None:
    fixture.insert(shot(fixture, 1, part(fixture, 1)))
    fixture.refused("INSERT", member(fixture, 1, 5), INVALID, why="a member beside a one-shot entry")
    fixture.refused("INSERT", group(fixture, 1, {}), INVALID, why="a group beside a one-shot entry")
