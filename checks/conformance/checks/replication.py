# SPDX-License-Identifier: Apache-2.0
"""Section 9.5: multicast groups and clone sessions."""

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture, answer_of
from accesspoint.checks.conformance.suite import NotApplicable, check, expect
from accesspoint.checks.harness.p4runtime import binary

INVALID, EXISTS, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
MULTICAST, CLONE = 20, 21  # requests


def groups(number: int = 0) -> p4r.PacketReplicationEngineEntry:
    return p4r.PacketReplicationEngineEntry(multicast_group_entry={"multicast_group_id": number})


def sessions(number: int = 0) -> p4r.PacketReplicationEngineEntry:
    return p4r.PacketReplicationEngineEntry(clone_session_entry={"session_id": number})


@check("9.5.1", "a packet leaves once for each replica, which knows its instance", ports=2)
def replicas(fixture: Fixture) -> None:
    first, second = list(fixture.place.ports)[:2]
    fixture.insert(fixture.group(5, (first, 1), (first, 2), (second, 3)))
    found = [(one.port, one.replica) for one in fixture.answers(3, MULTICAST, b=5)]
    expect(sorted(found), sorted([(first, 1), (first, 2), (second, 3)]), "ports and instances of the replicas")


@check("9.5.1", "one replica, to where the packet came from")
def one_replica(fixture: Fixture) -> None:
    fixture.insert(fixture.group(5, (fixture.home, 7)))
    expect(fixture.ask(MULTICAST, b=5).replica, 7, "the replica's instance")


@check("9.5.1", "a group that is not there, or not any more, drops")
def no_group(fixture: Fixture) -> None:
    fixture.silent(MULTICAST, b=6)
    fixture.insert(fixture.group(6, (fixture.home, 1)))
    fixture.ask(MULTICAST, b=6)
    fixture.delete(fixture.group(6))
    fixture.silent(MULTICAST, b=6)


@check("9.5.1", "MODIFY replaces the replicas")
def modify_group(fixture: Fixture) -> None:
    fixture.insert(fixture.group(5, (fixture.home, 1), (fixture.home, 2)))
    fixture.modify(fixture.group(5, (fixture.home, 9)))
    expect(fixture.ask(MULTICAST, b=5).replica, 9, "the replica's instance")


@check("9.5.1", "while a replica's port is down, its backup takes its place (1.5)", ports=2)
def backup(fixture: Fixture) -> None:
    port = list(fixture.place.ports)[1]
    group = fixture.group(5, (port, 1))
    group.replicas[0].backup_replicas.add(port=binary(fixture.home), instance=2)
    if fixture.outcome("INSERT", group) == rpc_code.UNIMPLEMENTED or not any(
        one.backup_replicas for found in fixture.read(groups(5)) for one in found.multicast_group_entry.replicas
    ):
        raise NotApplicable("the server has no backup replicas")
    fixture.found(groups(5), [p4r.PacketReplicationEngineEntry(multicast_group_entry=group)], "the group")

    unanswered = []

    def goes_to(instance: int, seconds: float = 0.2) -> bool:
        number, frame = fixture.request(MULTICAST, b=5)
        fixture.send(frame)
        found = fixture.collect(number, 1, seconds)
        if not found:
            unanswered.append(number)
        return [answer_of(*one).replica for one in found] == [instance]

    expect(goes_to(1, fixture.place.wait), True, "the replica gets the packet while its port is up")
    with fixture.down(port):
        fixture.until(lambda: goes_to(2), "the backup gets it while the port is down")
    fixture.until(lambda: goes_to(1), "the replica gets it again")
    # Answers later than they were waited for have come before the last ones of both ports.
    fixture.ask(0)
    for number in unanswered:
        expect(len(fixture.collect(number, 1, 0)) <= 1, True, "one replica gets the packet")


@check("9.5.1", "groups are read as they were written, one and all")
def read_groups(fixture: Fixture) -> None:
    one, two = fixture.group(5, (fixture.home, 1), (fixture.home, 2)), fixture.group(6)
    fixture.insert(one, two)
    wrapped = [p4r.PacketReplicationEngineEntry(multicast_group_entry=group) for group in (one, two)]
    fixture.found(groups(), wrapped, "all groups")
    fixture.found(groups(5), wrapped[:1], "one group")


@check("9.5.1", "a port is given as bytes", since="1.4.0")
def port_as_bytes(fixture: Fixture) -> None:
    group = p4r.MulticastGroupEntry(multicast_group_id=7, replicas=[p4r.Replica(port=binary(fixture.home), instance=1)])
    fixture.insert(group)
    fixture.found(groups(7), [p4r.PacketReplicationEngineEntry(multicast_group_entry=group)], "the group")
    fixture.ask(MULTICAST, b=7)


@check("9.5", "replicas whose ports are numbers are read so, and a client that adds one keeps the others")
def port_as_number(fixture: Fixture) -> None:
    ports = [p4r.Replica(egress_port=fixture.home, instance=instance) for instance in (1, 2)]
    group = p4r.MulticastGroupEntry(multicast_group_id=7, replicas=ports)
    session = p4r.CloneSessionEntry(session_id=7, replicas=ports)
    fixture.insert(group, session)
    wanted = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
    fixture.found(groups(7), [wanted], "the group")
    fixture.found(sessions(7), [p4r.PacketReplicationEngineEntry(clone_session_entry=session)], "the clone session")
    (read,) = fixture.read(groups(7))
    read.multicast_group_entry.replicas.add(egress_port=fixture.home, instance=3)
    fixture.modify(read.multicast_group_entry)
    found = [one.replica for one in fixture.answers(3, MULTICAST, b=7)]
    expect(sorted(found), [1, 2, 3], "instances of the replicas")


@check("9.5.1", "both forms of a port in one group are read as they were written", since="1.4.0")
def ports_in_both_forms(fixture: Fixture) -> None:
    ports = [p4r.Replica(port=binary(fixture.home), instance=1), p4r.Replica(egress_port=fixture.home, instance=2)]
    group = p4r.MulticastGroupEntry(multicast_group_id=7, replicas=ports)
    fixture.insert(group)
    fixture.found(groups(7), [p4r.PacketReplicationEngineEntry(multicast_group_entry=group)], "the group")
    fixture.delete(group)
    group.replicas[1].port = binary(fixture.home)
    fixture.insert(group)
    fixture.found(groups(7), [p4r.PacketReplicationEngineEntry(multicast_group_entry=group)], "a new group")


@check("9.5.1", "metadata is kept and returned", since="1.4.0")
def group_metadata(fixture: Fixture) -> None:
    group = fixture.group(5, (fixture.home, 1))
    group.metadata = b"note"
    fixture.insert(group)
    fixture.found(groups(5), [p4r.PacketReplicationEngineEntry(multicast_group_entry=group)], "the group")
    fixture.delete(group)
    group.metadata = b""
    fixture.insert(group)
    fixture.found(groups(5), [p4r.PacketReplicationEngineEntry(multicast_group_entry=group)], "a new group")


@check("9.5.1", "group 0, a replica twice, a group twice and an unknown one are refused")
def group_errors(fixture: Fixture) -> None:
    fixture.refused("INSERT", fixture.group(0, (fixture.home, 1)), INVALID, why="multicast group 0")
    twice = fixture.group(5, (fixture.home, 1), (fixture.home, 1))
    fixture.refused("INSERT", twice, INVALID, why="a group with a replica twice")
    fixture.refused("MODIFY", fixture.group(5), MISSING, why="a group that is not there")
    fixture.refused("DELETE", fixture.group(5), MISSING, why="a group that is not there")
    fixture.insert(fixture.group(5))
    fixture.refused("INSERT", fixture.group(5), EXISTS, why="a group that is there")


@check("9.5.2", "a clone leaves beside its packet, as a packet of its own")
def clone(fixture: Fixture) -> None:
    fixture.insert(fixture.session(5, (fixture.home, 4)))
    found = [(one.instance_type, one.replica) for one in fixture.answers(2, CLONE, b=5)]
    expect(sorted(found), [(0, 0), (1, 4)], "instance types and instances of packet and clone")


@check("9.5.2", "a session may have several replicas", ports=2)
def several_clones(fixture: Fixture) -> None:
    first, second = list(fixture.place.ports)[:2]
    fixture.insert(fixture.session(5, (first, 1), (second, 2)))
    found = [(one.port, one.instance_type) for one in fixture.answers(3, CLONE, b=5)]
    expect(sorted(found), sorted([(first, 0), (first, 1), (second, 1)]), "ports and instance types")


@check("9.5.2", "packet_length_bytes cuts the clone, not the packet")
def cut_clone(fixture: Fixture) -> None:
    fixture.insert(fixture.session(5, (fixture.home, 1), packet_length_bytes=40))
    packet, copy = sorted(fixture.answers(2, CLONE, b=5, payload=bytes(100)), key=lambda one: one.instance_type)
    expect(len(packet.frame), 14 + 16 + 8 + 100, "bytes of the packet")
    expect(len(copy.frame) < len(packet.frame) - 40, True, f"the clone ({len(copy.frame)} bytes) is cut")


@check("9.5.2", "a session that is not there clones nothing")
def no_session(fixture: Fixture) -> None:
    expect(fixture.ask(CLONE, b=66).instance_type, 0, "the packet's instance type")


@check("9.5.2", "sessions are modified, deleted and read as they were written")
def session_changes(fixture: Fixture) -> None:
    one = fixture.session(5, (fixture.home, 1), (fixture.home, 2))
    fixture.insert(one)
    fixture.found(sessions(), [p4r.PacketReplicationEngineEntry(clone_session_entry=one)], "all sessions")
    fixture.modify(fixture.session(5, (fixture.home, 6)))
    expect(sorted(one.replica for one in fixture.answers(2, CLONE, b=5)), [0, 6], "instances of packet and clone")
    fixture.delete(fixture.session(5))
    fixture.ask(CLONE, b=5)


@check("9.5.2", "session 0, a session twice and an unknown one are refused")
def session_errors(fixture: Fixture) -> None:
    fixture.refused("INSERT", fixture.session(0, (fixture.home, 1)), INVALID, why="clone session 0")
    fixture.refused("MODIFY", fixture.session(5, (fixture.home, 1)), MISSING, why="a session that is not there")
    fixture.refused("DELETE", fixture.session(5), MISSING, why="a session that is not there")
    fixture.insert(fixture.session(5, (fixture.home, 1)))
    fixture.refused("INSERT", fixture.session(5, (fixture.home, 1)), EXISTS, why="a session that is there")
