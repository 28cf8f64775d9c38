# SPDX-License-Identifier: Apache-2.0
"""finsy's client from PyPI: each kind of entity written and read back, packets, digests and idle timeouts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import finsy as fy
from finsy.p4entity import P4Replica, P4ValueSetMember

from accesspoint.checks.conformance.fixture import request_frame
from accesspoint.checks.foreign.case import Failed, case
from accesspoint.checks.foreign.clients.gnmi import NO_GNMI
from accesspoint.checks.foreign.clients.shell import PROGRAM, SOURCE
from accesspoint.checks.foreign.stand import P4RUNTIME, Stand

CLIENT = f"finsy {fy.__version__}"
OPTIONS = fy.SwitchOptions(
    p4info=PROGRAM.with_suffix(".p4info.txtpb"), p4blob=PROGRAM.with_suffix(".json"), device_id=0
)
WAIT = 20.0  # s, for what must come


def entry(**fields: Any) -> fy.P4TableEntry:
    """Return the entry of `exact_table` that the cases share."""
    match = fy.P4TableMatch(a=1, b=2)
    return fy.P4TableEntry("exact_table", match=match, action=fy.P4TableAction("count_and_say", value=3), **fields)


async def same(switch: Any, wanted: Any, filter_: Any) -> None:
    """Read what fits the filter. Raises Failed unless it is `wanted` alone."""
    found: list[Any] = [one async for one in switch.read([filter_])]
    if found != [wanted]:
        raise Failed(f"read back: {found}, not {wanted}")


async def empty(switch: Any, *filters: Any) -> None:
    """Raises Failed when something fits the filters."""
    left = [one async for one in switch.read(filters)]
    if left:
        raise Failed(f"left: {left}")


async def first(messages: AsyncIterator[Any]) -> Any:
    async with asyncio.timeout(WAIT):
        return await anext(messages)


async def request(switch: fy.Switch, op: int, a: int = 0, b: int = 0, c: int = 0) -> None:
    """Send a request frame into the pipeline: packet-out to port 0 is a packet from the CPU port."""
    await switch.write([fy.P4PacketOut(request_frame(SOURCE, op, a, b, c), egress_port=0, pad=0)])


@case("finsy-entities", CLIENT, "its client: entries, profiles, counters, meters, groups and sessions, read as written")
def entities(stand: Stand) -> None:
    profile = "group_selector"
    member = fy.P4ActionProfileMember(profile, member_id=1, action=fy.P4TableAction("say", value=4))
    group = fy.P4ActionProfileGroup(profile, group_id=1, max_size=4, members=[fy.P4Member(1, weight=2)])
    pairs: Sequence[tuple[Any, Any]] = [
        (entry(), fy.P4TableEntry("exact_table")),
        (member, fy.P4ActionProfileMember(profile)),
        (group, fy.P4ActionProfileGroup(profile)),
        (
            fy.P4TableEntry(
                "selector_table",
                match=fy.P4TableMatch(a=7),
                action=fy.P4IndirectAction(group_id=1),
            ),
            fy.P4TableEntry("selector_table"),
        ),
        (
            fy.P4TableEntry(
                "ternary_table",
                match=fy.P4TableMatch(c=(0x10, 0xF0), a=1),
                action=fy.P4TableAction("say", value=5),
                priority=10,
            ),
            fy.P4TableEntry("ternary_table"),
        ),
        (fy.P4MulticastGroupEntry(1, replicas=(P4Replica(1, instance=2),)), fy.P4MulticastGroupEntry()),
        (fy.P4CloneSessionEntry(2, replicas=(P4Replica(2, instance=1),)), fy.P4CloneSessionEntry()),
    ]
    meter = fy.P4MeterEntry("rates", index=3, config=fy.P4MeterConfig(cir=1, cburst=2, pir=3, pburst=4))

    async def session() -> None:
        async with fy.Switch("sw", P4RUNTIME, OPTIONS) as switch:
            for one, filter_ in pairs:
                await switch.insert([one])
                await same(switch, one, filter_)
            await switch.modify([meter])
            await same(switch, meter, fy.P4MeterEntry("rates", index=3))
            counter = fy.P4CounterEntry("requests", index=2, data=fy.P4CounterData(byte_count=9, packet_count=8))
            await switch.modify([counter])
            await same(switch, counter, fy.P4CounterEntry("requests", index=2))
            await switch.delete_all()
            await empty(switch, fy.P4TableEntry("exact_table"), fy.P4TableEntry("ternary_table"))

    with stand.switch():
        asyncio.run(session())


@case("finsy-stream", CLIENT, "its client: packet-out and packet-in, digests, idle timeouts, a backup that takes over")
def stream(stand: Stand) -> None:
    digest = fy.P4DigestEntry("source_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=1_000_000_000)

    async def session() -> None:
        async with fy.Switch("sw", P4RUNTIME, OPTIONS) as switch:
            packets, digests = switch.read_packets(), switch.read_digests("source_t")
            idle = switch.read_idle_timeouts()
            waiting = [asyncio.create_task(first(messages)) for messages in (packets, digests, idle)]
            await asyncio.sleep(0)
            await switch.insert([digest, entry(idle_timeout_ns=50_000_000)])
            await request(switch, 19, a=1, b=2, c=3)
            await request(switch, 24, a=5)
            packet, list_, notice = await asyncio.gather(*waiting)
            if packet["ingress_port"] != 510:
                raise Failed(f"the packet-in has the metadata {packet.metadata}")
            if list_.data != [{"a": 1, "b": 2, "c": 3}]:
                raise Failed(f"the digest has {list_.data}")
            if notice.table_entry[0].match != entry().match:
                raise Failed(f"the notice of an idle entry has {notice.table_entry}")
            await switch.write([fy.P4PacketOut(request_frame(SOURCE, 0), egress_port=1, pad=0)])
            # A client that has not read the pipeline yet cannot decode the entry's next notice.
            await switch.delete([entry()])
            if not switch.is_primary:
                raise Failed("the only client is not primary")
        later = fy.SwitchOptions(device_id=0, initial_election_id=20)
        async with fy.Switch("again", P4RUNTIME, later) as switch:
            if not switch.is_primary:
                raise Failed("the client with the higher election id is not primary")
            await same(switch, digest, fy.P4DigestEntry("source_t"))

    with stand.switch():
        asyncio.run(session())
        stand.frames(1, 1)


@case("finsy-extras", CLIENT, "its client: registers and value sets, which BMv2's server lacks", known={
    "bmv2": "registers and value sets over P4Runtime are [not supported](../switch/bmv2.md#different) by BMv2"
})  # fmt: skip
def extras(stand: Stand) -> None:
    register = fy.P4RegisterEntry("cells", index=1, data=77)
    members = fy.P4ValueSetEntry("members", members=[P4ValueSetMember(9)])

    async def session() -> None:
        async with fy.Switch("sw", P4RUNTIME, OPTIONS) as switch:
            await switch.modify([register, members])
            await same(switch, register, fy.P4RegisterEntry("cells", index=1))
            await same(switch, members, fy.P4ValueSetEntry("members", members=[]))

    with stand.switch():
        asyncio.run(session())


@case(
    "finsy-gnmi", CLIENT, "its gNMI client: capabilities, get, set, a subscription that sees the change", known=NO_GNMI
)
def gnmi(stand: Stand) -> None:
    enabled = fy.GNMIPath("interfaces/interface[name=switch1]/config/enabled")
    status = fy.GNMIPath("interfaces/interface[name=switch1]/state/oper-status")

    async def session() -> None:
        async with fy.GNMIClient(P4RUNTIME) as client:
            await client.capabilities()
            subscription = client.subscribe()
            subscription.on_change(status)
            seen = [update.value async for update in subscription.synchronize()]
            await client.set(update=[(enabled, False)])
            seen.append((await first(subscription.updates())).value)
            if seen != ["UP", "DOWN"]:
                raise Failed(f"the subscription has seen {seen}")
            (found,) = await client.get(enabled)
            if found.value is not False:
                raise Failed(f"{enabled} is read as {found.value}")

    with stand.switch():
        asyncio.run(session())
