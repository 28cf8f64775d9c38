# SPDX-License-Identifier: Apache-2.0
"""Sections 7, 14, 15 and 17: the pipeline, and what the server can do."""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import grpc
from finsy.proto import p4i, p4r

from accesspoint.checks.conformance.checks.profiles import group, member
from accesspoint.checks.conformance.fixture import Fixture, load
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail
from accesspoint.checks.harness.p4runtime import Client, exact, insert

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def refuses(call: Callable[[], Any], what: str, *codes: grpc.StatusCode) -> None:
    """The call fails with one of the codes."""
    try:
        call()
    except grpc.RpcError as failure:
        if failure.code() not in codes:
            fail(f"{what}: {failure.code().name} instead of {' or '.join(code.name for code in codes)}")
    else:
        fail(f"{what} is taken, instead of {' or '.join(code.name for code in codes)}")


def mark(fixture: Fixture) -> p4r.TableEntry:
    """An entry and a cookie by which a check sees that pipeline and state were kept."""
    fixture.client.push(program=fixture.program, cookie=42)
    entry = fixture.entry("lpm_table", action=("say", 1))
    fixture.insert(entry)
    return entry


def is_kept(fixture: Fixture, entry: p4r.TableEntry) -> None:
    expect(fixture.client.pipeline().config.cookie.cookie, 42, "the cookie")
    fixture.found(fixture.entry("lpm_table"), [entry], "the entry")


@check("15", "without a pipeline the config is unset", None, anew=True)
def no_pipeline(fixture: Fixture) -> None:
    response = fixture.connect().pipeline()
    if response.HasField("config") and response.config.HasField("p4info"):
        raise NotApplicable("the server runs a pipeline, and nothing but its restart takes that away")
    expect(response.HasField("config"), False, "config is set")


def without_pipeline(fixture: Fixture) -> Client:
    """A primary of a server that has none yet. Raises NotApplicable."""
    client = fixture.connect(program=load(fixture.place.programs, "entities"))
    with contextlib.suppress(grpc.RpcError):
        if client.pipeline().config.HasField("p4info"):
            raise NotApplicable("the server runs a pipeline, and nothing but its restart takes that away")
    return client.become_primary(fixture.next_election())


@check("12", "Write before a pipeline is FAILED_PRECONDITION", None, anew=True)
def write_without_pipeline(fixture: Fixture) -> None:
    client = without_pipeline(fixture)
    entry = client.program.entry("lpm_table", action=("say", 1)) if client.program else None
    refuses(lambda: client.write(insert(entry)), "Write without a pipeline", grpc.StatusCode.FAILED_PRECONDITION)


@check("13", "Read before a pipeline is FAILED_PRECONDITION", None, anew=True)
def read_without_pipeline(fixture: Fixture) -> None:
    client = without_pipeline(fixture)
    read = lambda: client.read(table_entry=p4r.TableEntry())  # noqa: E731
    refuses(read, "Read without a pipeline", grpc.StatusCode.FAILED_PRECONDITION)


@check("14", "COMMIT without a saved config is NOT_FOUND", None, anew=True)
def commit_nothing(fixture: Fixture) -> None:
    client = fixture.connect().become_primary(fixture.next_election())
    refuses(lambda: client.push("COMMIT"), "COMMIT without a saved config", grpc.StatusCode.NOT_FOUND)


@check("7", "P4Info, device config and cookie are returned as they were set")
def returned_as_set(fixture: Fixture) -> None:
    fixture.client.push(program=fixture.program, cookie=0xFEDCBA9876543210)
    config = fixture.connect().pipeline().config
    expect(config.p4info == fixture.program.p4info, True, "the P4Info is the same")
    expect(config.cookie.cookie, 0xFEDCBA9876543210, "the cookie")
    if config.p4_device_config:  # a server may keep it to itself
        expect(config.p4_device_config == fixture.program.device_config, True, "the device config is the same")


@check("14", "VERIFY changes nothing")
def verify(fixture: Fixture) -> None:
    entry = mark(fixture)
    fixture.client.push("VERIFY", load(fixture.place.programs, "externs"), cookie=43)
    is_kept(fixture, entry)


@check("14", "VERIFY_AND_COMMIT clears the forwarding state")
def commit_clears(fixture: Fixture) -> None:
    fixture.insert(fixture.entry("lpm_table", action=("say", 1)), fixture.group(3, (fixture.home, 1)))
    member = p4r.ActionProfileMember(
        action_profile_id=fixture.program.id("action_profiles", "profile"),
        member_id=1,
        action=fixture.entry("lpm_table", action=("say", 1)).action.action,
    )
    default = fixture.entry("keyless_table", action=("say", 9), is_default_action=True)
    cell = p4r.CounterEntry(counter_id=fixture.program.id("counters", "requests"), index={"index": 1})
    fixture.insert(member)
    fixture.modify(default, p4r.CounterEntry(counter_id=cell.counter_id, index=cell.index, data={"packet_count": 5}))
    fixture.client.push(program=fixture.program)
    constant = fixture.program.id("tables", "constant_table")
    left = [one for one in fixture.read(p4r.TableEntry()) if one.table_id != constant]
    expect(left, [], "entries")
    fixture.found(p4r.ActionProfileMember(), [], "members")
    expect(fixture.read(cell)[0].data.packet_count, 0, "a counter")
    expect(fixture.ask(10).value, 0, "the default action's answer")
    fixture.found(p4r.PacketReplicationEngineEntry(multicast_group_entry={}), [], "multicast groups")


@check("14", "VERIFY_AND_SAVE leaves the state alone; COMMIT brings the saved config")
def save_and_commit(fixture: Fixture) -> None:
    fixture.modify(fixture.entry("keyless_table", action=("say", 9), is_default_action=True))
    other = load(fixture.place.programs, "externs")
    fixture.client.push("VERIFY_AND_SAVE", other, cookie=43)
    expect(fixture.ask(10).value, 9, "the running program's answer between VERIFY_AND_SAVE and COMMIT")
    refuses(lambda: fixture.client.push("COMMIT", other), "COMMIT with a config", INVALID)
    fixture.client.push("COMMIT")
    fixture.program = fixture.client.program = other
    expect(fixture.client.pipeline().config.cookie.cookie, 43, "the cookie after COMMIT")
    expect(fixture.ask(0x1D).value, 4, "the new program's answer after COMMIT")


def reconcile(fixture: Fixture) -> None:
    """Push the program once more. Raises NotApplicable where the server has no RECONCILE_AND_COMMIT."""
    try:
        fixture.client.push("RECONCILE_AND_COMMIT", fixture.program, cookie=42)
    except grpc.RpcError as failure:
        if failure.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise NotApplicable("the server does not offer it (UNIMPLEMENTED)") from None
        raise


@check("14", "RECONCILE_AND_COMMIT keeps the state")
def reconcile_keeps(fixture: Fixture) -> None:
    entry = mark(fixture)
    program = fixture.program
    resources = {
        "counter_data": {"packet_count": 5, "byte_count": 6},
        "meter_config": {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4},
        "idle_timeout_ns": 10**12,
        "metadata": b"note",
    }
    counted = fixture.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", 1), **resources)
    one, two = member(fixture, 1, 10), group(fixture, 1, {1: 2})
    flood = p4r.PacketReplicationEngineEntry(multicast_group_entry=fixture.group(3, (fixture.home, 1)))
    digest = p4r.DigestEntry(digest_id=program.id("digests", "source_t"), config={"max_list_size": 3})
    fixture.insert(counted, one, two, flood, digest)
    default = fixture.entry("keyless_table", action=("say", 9), is_default_action=True)
    cell = p4r.CounterEntry(counter_id=program.id("counters", "requests"), index={"index": 1}, data={"packet_count": 5})
    register = p4r.RegisterEntry(
        register_id=program.id("registers", "cells"), index={"index": 2}, data={"bitstring": b"\7"}
    )
    fixture.modify(default, cell, register)
    reconcile(fixture)
    is_kept(fixture, entry)
    expect([fixture.ask(2, c=7).value, fixture.ask(10).value], [1, 9], "answers of an entry and a default entry")
    fixture.found(fixture.entry("exact_table", counter_data={}, meter_config={}), [counted], "direct resources")
    for message in (one, two, flood, digest, cell, register):
        fixture.found(message, [message], f"a {type(message).__name__}")


@check("14", "RECONCILE_AND_COMMIT leaves initial entries that were deleted away", "initial")
def reconcile_initial(fixture: Fixture) -> None:
    fixture.delete(fixture.entry("initial_table", [exact(1, 2)], ("say", 0)))
    reconcile(fixture)
    expect([fixture.ask(0, a).value for a in (1, 2)], [11, 0], "answers of the entry that stayed and the deleted one")


@check("14", "an action that is not specified is INVALID_ARGUMENT")
def unspecified(fixture: Fixture) -> None:
    entry = mark(fixture)
    refuses(lambda: fixture.client.push("UNSPECIFIED", fixture.program), "action UNSPECIFIED", INVALID)
    is_kept(fixture, entry)


@check("14", "a missing config is INVALID_ARGUMENT for VERIFY, VERIFY_AND_SAVE and VERIFY_AND_COMMIT")
def no_config(fixture: Fixture) -> None:
    entry = mark(fixture)
    for action in ("VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT"):
        refuses(lambda action=action: fixture.client.push(action), f"{action} without a config", INVALID)  # type: ignore[misc]
    is_kept(fixture, entry)


@check("14", "a device config that is none is INVALID_ARGUMENT and changes nothing")
def bad_device_config(fixture: Fixture) -> None:
    entry = mark(fixture)
    push = lambda: fixture.client.push(program=fixture.program, p4_device_config=b"no program")  # noqa: E731
    refuses(push, "a device config that is no program", INVALID)
    is_kept(fixture, entry)


@check("14", "a P4Info that does not fit the device config is INVALID_ARGUMENT and changes nothing")
def bad_p4info(fixture: Fixture) -> None:
    entry = mark(fixture)
    p4info = p4i.P4Info()
    p4info.CopyFrom(fixture.program.p4info)
    table = next(one for one in p4info.tables if one.preamble.alias == "lpm_table")
    table.preamble.name = "EntitiesIngress.no_such_table"
    refuses(
        lambda: fixture.client.push(program=fixture.program, p4info=p4info),
        "a P4Info with a table that is not there",
        INVALID,
    )
    is_kept(fixture, entry)


@check("14", "a client that is not primary may not set a pipeline")
def not_primary(fixture: Fixture) -> None:
    backup = fixture.connect()
    backup.arbitrate(fixture.election - 5)
    backup.status()
    refuses(lambda: backup.push(program=fixture.program), "a pipeline of a backup", grpc.StatusCode.PERMISSION_DENIED)


@check("14", "an unknown device is NOT_FOUND, before anything else is looked at", None)
def unknown_device(fixture: Fixture) -> None:
    client = fixture.connect(device_id=fixture.place.device_id + 77)
    refuses(lambda: client.push("COMMIT"), "a pipeline for an unknown device", grpc.StatusCode.NOT_FOUND)
    refuses(client.pipeline, "the pipeline of an unknown device", grpc.StatusCode.NOT_FOUND)


@check("15", "each response type has its fields")
def response_types(fixture: Fixture) -> None:
    fixture.client.push(program=fixture.program, cookie=42)
    for kind, fields in (
        ("COOKIE_ONLY", {"cookie"}),
        ("P4INFO_AND_COOKIE", {"cookie", "p4info"}),
        ("DEVICE_CONFIG_AND_COOKIE", {"cookie", "p4_device_config"}),
        ("ALL", {"cookie", "p4info", "p4_device_config"}),
    ):
        found = {one.name for one, _ in fixture.client.pipeline(kind).config.ListFields()}
        if found | {"p4_device_config"} != fields | {"p4_device_config"}:
            fail(f"{kind} has {', '.join(sorted(found))} instead of {', '.join(sorted(fields))}")


@check("17", "Capabilities names a semantic version of the API", None)
def capabilities(fixture: Fixture) -> None:
    version = fixture.connect().stub.Capabilities(p4r.CapabilitiesRequest(), timeout=fixture.place.wait)
    text = version.p4runtime_api_version
    if not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", text):
        fail(f"p4runtime_api_version is '{text}', which is no semantic version")


@check("7", "packets run through the new pipeline when SetForwardingPipelineConfig returns")
def takes_effect(fixture: Fixture) -> None:
    fixture.insert(fixture.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", 77)))
    expect(fixture.ask(1, a=1, b=1).value, 77, "the first program's answer")
    fixture.load("externs")
    expect(fixture.ask(0x1D).value, 4, "the second program's answer")
    fixture.load("entities")
    expect(fixture.ask(1, a=1, b=1).value, 0, "the first program's answer without entries")
