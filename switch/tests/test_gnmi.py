# SPDX-License-Identifier: Apache-2.0
"""gNMI as finsy's client and plain gRPC speak it, against the real switch with files as ports."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy import GNMIPath
from finsy.gnmiclient import GNMIClient, GNMIClientError
from finsy.ports import SwitchPortList
from finsy.proto import gnmi, gnmi_ext, gnmi_grpc

from accesspoint.checks.harness.apswitch import BINARY, ROOT, free_address, running
from accesspoint.checks.harness.p4runtime import WAIT
from accesspoint.checks.harness.waiting import eventually

SECOND = 1_000_000_000  # ns
POLICY = "/qos/scheduler-policies/scheduler-policy[name={}]"
BINDING = "/qos/interfaces/interface[interface-id={}]/output/scheduler-policy/config/name"
# Sends all to port 2; kind 0x14 to the queue in its second byte.
PROGRAM = ROOT / "switch/testdata/programs/features.json"
FRAME = bytes([0x14, 0]) + bytes(984)  # has 1000 bytes in the queue
FRAMES = 60
LINK = "2:rate=8kbit,limit=50,delay=2ms"  # a second for each of them
TO_NOBODY = bytes([0x15, 0, 0, 0, 0, 99]) + bytes(54)  # is for port 99, which there is not
DROPS = "/pipeline-counters/drop/state"
QUEUES = ("--queue", "2/7:rate=64kbit,burst=3000", "--queue", "2/1:weight=1", "--queue", "2/0:weight=3,limit=49")


@dataclass
class Switch:
    """A running switch. Port 1 is `left`, port 2, with queues, `right`."""

    address: str
    left: str
    right: str
    stub: Any
    run: Callable[[Callable[[GNMIClient], Any]], Any]

    def get(self, path: str, encoding: str = "PROTO", kind: str = "ALL") -> dict[str, Any]:
        """Values by their paths; JSON is decoded."""
        request = gnmi.GetRequest(path=[GNMIPath(path).path], encoding=encoding, type=kind)
        updates = [update for answer in self.stub.Get(request).notification for update in answer.update]
        return {f"/{GNMIPath(update.path)}": plain(update.val) for update in updates}

    def set(self, **operations: Any) -> gnmi.SetResponse:
        """update, replace: {path: JSON or a scalar}; delete: [path]."""
        request = gnmi.SetRequest(delete=[GNMIPath(path).path for path in operations.pop("delete", [])])
        for operation, values in operations.items():
            for path, value in values.items():
                update = getattr(request, operation).add(path=GNMIPath(path).path)
                match value:
                    case dict():
                        update.val.json_ietf_val = json.dumps(value).encode()
                    case bool():
                        update.val.bool_val = value
                    case int():
                        update.val.uint_val = value
                    case _:
                        update.val.string_val = value
        return self.stub.Set(request)

    def queue(self, number: int) -> str:
        return f"/qos/interfaces/interface[interface-id={self.right}]/output/queues/queue[name={number}]/state"


def plain(value: gnmi.TypedValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind
    content = getattr(value, kind)
    return json.loads(content) if kind in ("json_val", "json_ietf_val") else content


PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def records(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Switch]:
    (tmp_path / "left_in.pcap").write_bytes(PCAP + records([FRAME] * FRAMES))
    with started(tmp_path) as switch:
        yield switch


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Switch]:
    """Start a switch on `left_in.pcap` in a directory; nothing comes in on the right."""
    address = free_address()
    left, right = str(directory / "left"), str(directory / "right")
    Path(f"{right}_in.pcap").write_bytes(PCAP)
    command = [str(BINARY), str(PROGRAM), "-i", f"1@{left}", "-i", f"2@{right}", "--use-files", "0", "--link", LINK]
    command += [*QUEUES, "--grpc-server-addr", address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with running(address, process), grpc.insecure_channel(address) as channel:

        def run(work: Callable[[GNMIClient], Any]) -> Any:
            async def inside() -> Any:
                async with asyncio.timeout(3 * WAIT), GNMIClient(address) as client:
                    return await work(client)

            return asyncio.run(inside())

        yield Switch(address, left, right, gnmi_grpc.gNMIStub(channel), run)


def refused(code: grpc.StatusCode, text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        call()
    assert (failure.value.code(), text in failure.value.details()) == (code, True), failure.value.details()


def test_capabilities(switch: Switch) -> None:
    answer = switch.run(lambda client: client.capabilities())
    models = {model.name for model in answer.supported_models}
    assert {"openconfig-interfaces", "openconfig-qos", "apswitch-queues"} <= models
    assert set(answer.supported_encodings) == {gnmi.JSON, gnmi.JSON_IETF, gnmi.PROTO, gnmi.ASCII}
    assert answer.gNMI_version == "0.10.0"


def test_finsy_lists_the_ports_and_follows_their_state(switch: Switch) -> None:
    async def work(client: GNMIClient) -> None:
        ports = SwitchPortList()
        await ports.subscribe(client)
        assert {(port.id, port.name, port.up) for port in ports} == {(1, switch.left, True), (2, switch.right, True)}
        enabled = GNMIPath(f"interfaces/interface[name={switch.right}]/config/enabled")
        listener = asyncio.create_task(ports.listen())
        for value in (False, True):
            await client.set(update=[(enabled, value)])
            while ports[switch.right].up != value:
                await asyncio.sleep(0.01)
        assert ports[switch.left].up
        listener.cancel()
        ports.close()

    switch.run(work)


def test_values_in_every_encoding(switch: Switch) -> None:
    path = f"/interfaces/interface[name={switch.left}]/state/id"
    for encoding, value in (("PROTO", 1), ("ASCII", "1"), ("JSON", 1), ("JSON_IETF", 1)):
        assert switch.get(path, encoding) == {path: value}
    assert switch.get(f"{POLICY.format(switch.right)}/schedulers/scheduler[sequence=0]", "JSON_IETF").popitem()[1] == {
        "openconfig-qos:sequence": 0,
        "openconfig-qos:config": {"sequence": 0, "type": "openconfig-qos-types:ONE_RATE_TWO_COLOR"},
        "openconfig-qos:state": {"sequence": 0, "type": "openconfig-qos-types:ONE_RATE_TWO_COLOR"},
        "openconfig-qos:output": {part: {"output-type": "INTERFACE"} for part in ("config", "state")},
        "openconfig-qos:one-rate-two-color": {
            part: {"cir": "8000", "max-queue-depth-packets": 50} for part in ("config", "state")
        },
    }
    counters = switch.get(f"/interfaces/interface[name={switch.right}]/state/counters", "JSON")
    assert counters.popitem()[1]["in-pkts"] == 0
    refused(grpc.StatusCode.UNIMPLEMENTED, "encoding", lambda: switch.get("/", "BYTES"))


def test_wildcards_prefixes_and_types_of_data(switch: Switch) -> None:
    names = {f"/interfaces/interface[name={port}]/state/oper-status": "UP" for port in (switch.left, switch.right)}
    for path in (
        "/interfaces/interface/state/oper-status",
        "/interfaces/interface[name=*]/state/oper-status",
        "/openconfig-interfaces:interfaces/*/state/oper-status",
        "/.../oper-status",
    ):
        assert switch.get(path) == names
    assert [value["name"] for value in switch.get("/interfaces/interface", "JSON").values()] == [
        switch.left,
        switch.right,
    ]
    prefix = GNMIPath("/qos/queues", target="ap").path
    request = gnmi.GetRequest(prefix=prefix, path=[GNMIPath("queue[name=3]/config/queue-id").path], encoding="PROTO")
    answer = switch.stub.Get(request).notification[0]
    assert (answer.prefix.target, answer.update[0].val.uint_val) == ("ap", 3)
    # pygnmi makes this of openconfig-qos:qos/queues.
    of_module = GNMIPath("/qos/queues/queue[name=3]/config/queue-id", origin="openconfig-qos").path
    answer = switch.stub.Get(gnmi.GetRequest(path=[of_module], encoding="PROTO")).notification[0]
    assert answer.update[0].val.uint_val == 3
    interface = f"/interfaces/interface[name={switch.left}]"
    config, state = (set(switch.get(interface, kind=kind)) for kind in ("CONFIG", "STATE"))
    assert all("/config/" in path for path in config) and all("/state/" in path for path in state)
    operational = {path.rsplit("/", 1)[1] for path in switch.get(interface, kind="OPERATIONAL")}
    assert "oper-status" in operational and "enabled" not in operational


def test_errors_have_gnmi_s_codes(switch: Switch) -> None:
    for path, code, text in (
        ("/interfaces/interface[name=nowhere]/state", grpc.StatusCode.NOT_FOUND, "does not exist"),
        ("/interfaces/subinterfaces", grpc.StatusCode.UNIMPLEMENTED, "no such node"),
        ("/interfaces/interface[id=1]", grpc.StatusCode.INVALID_ARGUMENT, "id is no key"),
    ):
        refused(code, text, partial(switch.get, path))
    with pytest.raises(GNMIClientError) as failure:
        switch.run(lambda client: client.get(GNMIPath("/interfaces/interface[name=nowhere]")))
    assert failure.value.code.name == "NOT_FOUND"
    with_extension = gnmi.GetRequest(extension=[gnmi_ext.Extension(depth=gnmi_ext.Depth(level=1))])
    refused(grpc.StatusCode.UNIMPLEMENTED, "extensions", lambda: switch.stub.Get(with_extension))
    other = gnmi.GetRequest(path=[GNMIPath("/a", origin="cli").path])
    refused(grpc.StatusCode.UNIMPLEMENTED, "origin", lambda: switch.stub.Get(other))


def test_a_set_is_all_or_nothing(switch: Switch) -> None:
    policy = POLICY.format(switch.right)
    before = switch.get("/", kind="CONFIG")
    interface = f"/interfaces/interface[name={switch.right}]"
    shaper = f"{policy}/schedulers/scheduler[sequence=0]/one-rate-two-color/config"
    input_of_1 = f"{policy}/schedulers/scheduler[sequence=2]/inputs/input[id=1]/config"
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    for path, value, code, text in (
        (f"{shaper}/cir", 0, invalid, "cir 0 is not from 1"),
        (f"{shaper}/cir", "fast", invalid, "fast is not a whole number"),
        (f"{shaper}/bc", 1 << 32, invalid, "up to 4294967295"),
        (f"{shaper}/max-queue-depth-packets", 1 << 21, invalid, "above 1048576"),
        (f"{shaper}/queuing-behavior", "POLICE", invalid, "POLICE is not SHAPE"),
        (f"{shaper}/pir", 1, missing, "no such node"),
        (f"{shaper}/cir", {"a": 1}, invalid, "is not a whole number"),
        (f"{input_of_1}/weight", 0, invalid, "weight 0 is not from 1"),
        (f"{input_of_1}/queue", "8", invalid, "not within 0 to 7"),
        (f"{input_of_1}/queue", "0", invalid, "an input already"),
        (f"{input_of_1}/id", "5", invalid, "5 is not the key 1"),
        (f"{policy}/schedulers/scheduler[sequence=9]/config/priority", "STRICT", invalid, "needs one input"),
        (
            f"{policy}/schedulers/scheduler[sequence=3]/config/priority",
            "STRICT",
            invalid,
            "strict priority has no weight",
        ),
        (BINDING.format(switch.left), "nobody's", invalid, "no scheduler-policy nobody's"),
        (BINDING.format("nowhere"), switch.right, missing, "no interface nowhere"),
        (f"{interface}/config/mtu", 9000, missing, "does not exist"),
        (f"{interface}/config/name", "other", invalid, "other is not the key"),
        (f"{interface}/config", {"type": "iana-if-type:other"}, invalid, "is not ethernetCsmacd"),
        (f"{interface}/state/oper-status", "UP", invalid, "state is not for setting"),
        (f"{interface}/link-model/config/loss", "1.5", invalid, "a number from 0 to 1"),
        (f"{interface}/link-model/config/delay", 61 * SECOND, invalid, "above 60000000000"),
        ("/interfaces/interface/config/enabled", False, invalid, "without wildcards"),
        ("/qos/scheduler-policies", {"scheduler-policy": [{"config": {}}]}, invalid, "without its key name"),
    ):
        # The first of the two is good, and has no effect either.
        updates: dict[str, Any] = {f"{interface}/link-model/config/jitter": 5, path: value}
        refused(code, text, partial(switch.set, update=updates))
    assert switch.get("/", kind="CONFIG") == before


def test_ports_that_are_files_go_and_do_not_come(switch: Switch) -> None:
    """A port that is a file can be removed, not added; ports on interfaces can be both: src/gnmi/tests.rs."""
    left, right = (f"/interfaces/interface[name={port}]" for port in (switch.left, switch.right))
    files = grpc.StatusCode.FAILED_PRECONDITION
    refused(files, "start it on network interfaces", lambda: switch.set(update={id_of("veth9"): 9}))
    taken = grpc.StatusCode.ALREADY_EXISTS
    refused(taken, f"2 is the port of {switch.right}", lambda: switch.set(update={id_of("veth9"): 2}))
    switch.set(update={id_of(switch.right): 2})  # as it is

    async def streams(_: GNMIClient) -> None:
        async with Subscription(switch, "STREAM", (f"{right}/state/id", {"mode": "ON_CHANGE"})) as stream:
            assert [await stream.next(), await stream.next()] == [{"id": 2}, True]
            await asyncio.to_thread(switch.set, delete=[right])
            assert await stream.next() == {"id": None}

    switch.run(streams)
    assert switch.get("/interfaces/interface/state/id") == {f"{left}/state/id": 1}
    # Its queues go with it, what waited there is counted, and other ports are set as before.
    assert not switch.get("/qos/interfaces/interface/output/queues/queue/state/queue-len-pkts")
    assert switch.get(f"{DROPS}/port-removed").popitem()[1] > 40
    switch.set(update={f"{left}/config/enabled": False})


def id_of(interface: str) -> str:
    return f"/interfaces/interface[name={interface}]/config/id"


def test_policies_are_made_bound_replaced_and_deleted(switch: Switch) -> None:
    policy, binding = POLICY.format("gold"), BINDING.format(switch.left)
    strict = {
        "sequence": 1,
        "config": {"priority": "STRICT"},
        "inputs": {"input": [{"id": "voice", "config": {"input-type": "QUEUE", "queue": "7"}}]},
        "one-rate-two-color": {"config": {"cir": "1000000", "bc": 3000, "max-queue-depth-bytes": 20000}},
    }
    weighted = {
        "sequence": 2,
        "inputs": {"input": [{"id": str(queue), "config": {"queue": str(queue), "weight": "2"}} for queue in (0, 1)]},
    }
    port = {
        "sequence": 9,
        "output": {"config": {"output-type": "INTERFACE"}},
        "one-rate-two-color": {"config": {"cir": "20000000", "queuing-behavior": "SHAPE"}},
    }
    assert not any("/queues/" in path for path in switch.get(f"/qos/interfaces/interface[interface-id={switch.left}]"))
    answer = switch.set(
        update={policy: {"schedulers": {"openconfig-qos:scheduler": [strict, weighted, port]}}, binding: "gold"}
    )
    assert [result.op for result in answer.response] == [gnmi.UpdateResult.UPDATE] * 2 and answer.timestamp > 0
    assert (
        switch.get(f"{policy}/schedulers/scheduler[sequence=1]/inputs/input[id=voice]/state/queue").popitem()[1] == "7"
    )
    assert len(switch.get(f"/qos/interfaces/interface[interface-id={switch.left}]/output/queues/queue/name")) == 8
    # A policy that is in use stays.
    refused(grpc.StatusCode.INVALID_ARGUMENT, "no scheduler-policy gold", lambda: switch.set(delete=[policy]))
    # Replace leaves nothing of what was there; update does.
    shaper = f"{policy}/schedulers/scheduler[sequence=1]/one-rate-two-color/config"
    switch.set(update={shaper: {"bc": 1500}})
    assert switch.get(shaper, "JSON").popitem()[1] == {"cir": 1000000, "bc": 1500, "max-queue-depth-bytes": 20000}
    switch.set(replace={shaper: {"cir": "2000000"}})
    assert switch.get(shaper, "JSON").popitem()[1] == {"cir": 2000000}
    # The answer to a Get of the configuration can be set again.
    config = switch.get("/qos", "JSON_IETF", "CONFIG").popitem()[1]
    switch.set(replace={"/qos": config})
    assert switch.get("/qos", "JSON_IETF", "CONFIG").popitem()[1] == config
    switch.set(delete=["/qos/interfaces/interface[interface-id=*]/output/scheduler-policy", "/qos/scheduler-policies"])
    refused(grpc.StatusCode.NOT_FOUND, "does not exist", lambda: switch.get("/qos/scheduler-policies"))
    switch.set(delete=[policy])  # what is not there may be deleted


def test_queues_are_counted_and_follow_what_is_set(switch: Switch) -> None:
    """Packets wait for a slow link, as many as the queue has room for; with a new rate they leave."""

    def state() -> dict[str, Any]:
        return {path.rsplit("/", 1)[1]: value for path, value in switch.get(switch.queue(0)).items()}

    def came() -> dict[str, Any] | None:
        return now if (now := state())["enqueued-pkts"] + now["dropped-pkts"] >= FRAMES else None

    now = eventually(came, WAIT)
    assert now, state()
    # 49 have room, and those that the wire took before the last one came.
    assert now["enqueued-pkts"] + now["dropped-pkts"] == FRAMES and 49 <= now["enqueued-pkts"] <= 54
    assert now["enqueued-octets"] == now["enqueued-pkts"] * 1000 and now["dropped-octets"] == now["dropped-pkts"] * 1000
    assert now["queue-len-octets"] == now["queue-len-pkts"] * 1000 and now["max-queue-len"] == 49_000
    assert 40 <= now["queue-len-pkts"] <= 49
    discards = switch.get(f"/interfaces/interface[name={switch.right}]/state/counters/out-discards")
    assert list(discards.values()) == [now["dropped-pkts"]]

    async def drain(client: GNMIClient) -> dict[str, Any]:
        """The latest value of each leaf when all that was wanted has been seen."""
        seen: dict[str, Any] = {}
        samples = client.subscribe()
        rates = f"/interfaces/interface[name={switch.right}]/rates/state"
        samples.sample(GNMIPath(switch.queue(0)), GNMIPath(rates), sample_interval=SECOND // 20)
        async for _ in samples.synchronize():
            pass
        shaper = f"{POLICY.format(switch.right)}/schedulers/scheduler[sequence=0]/one-rate-two-color/config/cir"
        await client.set(update=[(GNMIPath(shaper), 80_000)])  # for seconds, so that samples see the rates
        async for update in samples.updates():
            leaf = update.path.last
            if update.value is None or (update.value == 0 and (leaf.endswith("rate") or leaf.startswith("sojourn"))):
                continue  # of a second without packets
            seen[leaf] = update.value
            # The values of a sample are not of one moment: the last packet may leave after its counter was read.
            empty = seen.get("queue-len-pkts") == 0 and seen.get("transmit-pkts") == now["enqueued-pkts"]
            if empty and "sojourn-p99" in seen and seen.get("out-pkts-rate", 0) > 5:
                break
        samples.cancel()
        return seen

    seen = switch.run(drain)
    assert seen["transmit-pkts"] == now["enqueued-pkts"] and seen["transmit-octets"] == now["enqueued-octets"]
    assert 0 < seen["sojourn-p50"] <= seen["sojourn-p99"] < 3 * WAIT * SECOND
    assert seen["out-bits-rate"] >= 8000 * seen["out-pkts-rate"] - 8000 > 0


class Subscription:
    """One Subscribe stream of plain gRPC."""

    def __init__(self, switch: Switch, mode: str, *subscriptions: tuple[str, dict[str, Any]], **options: Any) -> None:
        items = [gnmi.Subscription(path=GNMIPath(path).path, **fields) for path, fields in subscriptions]
        self.first = gnmi.SubscribeRequest(subscribe=gnmi.SubscriptionList(mode=mode, subscription=items, **options))
        self.switch = switch

    async def __aenter__(self) -> "Subscription":
        self.channel = grpc.aio.insecure_channel(self.switch.address)
        self.call = gnmi_grpc.gNMIStub(self.channel).Subscribe()
        await self.call.write(self.first)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()
        await self.channel.close()

    async def next(self) -> dict[str, Any] | bool | None:
        """Values by the names of leaves, None where they are gone; True: in sync; None: the end."""
        answer = await asyncio.wait_for(self.call.read(), WAIT)
        if answer == grpc.aio.EOF:
            return None
        if answer.HasField("sync_response"):
            return answer.sync_response
        values = {GNMIPath(update.path).last: plain(update.val) for update in answer.update.update}
        return values | dict.fromkeys(GNMIPath(path).last for path in answer.update.delete)


def test_once_and_poll(switch: Switch) -> None:
    path = f"/interfaces/interface[name={switch.left}]/state/ifindex"

    async def once(client: GNMIClient) -> list[Any]:
        subscription = client.subscribe()
        subscription.once(GNMIPath(path))
        return [update.value async for update in subscription.synchronize()]

    assert switch.run(once) == [1]

    async def streams(_: GNMIClient) -> None:
        nowhere = "/interfaces/interface[name=nowhere]/state"
        async with Subscription(switch, "ONCE", (path, {}), (nowhere, {}), encoding="JSON_IETF") as stream:
            assert [await stream.next() for _ in range(3)] == [{"ifindex": 1}, True, None]
        async with Subscription(switch, "POLL", (path, {})) as stream:
            for _poll in range(2):
                assert [await stream.next(), await stream.next()] == [{"ifindex": 1}, True]
                await stream.call.write(gnmi.SubscribeRequest(poll=gnmi.Poll()))
        async with Subscription(switch, "POLL", (path, {}), updates_only=True) as stream:
            assert await stream.next() is True

    switch.run(streams)


def test_samples_and_changes(switch: Switch) -> None:
    interface = f"/interfaces/interface[name={switch.left}]"
    model = f"{interface}/link-model"

    async def streams(_: GNMIClient) -> None:
        often = {"mode": "SAMPLE", "sample_interval": SECOND // 50}
        async with Subscription(switch, "STREAM", (f"{interface}/state/id", often)) as stream:
            assert [await stream.next() for _ in range(5)] == [{"id": 1}, True, {"id": 1}, {"id": 1}, {"id": 1}]
        beats = {"mode": "ON_CHANGE", "heartbeat_interval": SECOND // 10}
        async with Subscription(switch, "STREAM", (f"{interface}/state/id", beats), updates_only=True) as stream:
            assert [await stream.next() for _ in range(3)] == [True, {"id": 1}, {"id": 1}]
        # A path that is not there yet, comes, changes and goes: nothing else is sent.
        for fields in ({"mode": "ON_CHANGE"}, often | {"suppress_redundant": True}, {"mode": "TARGET_DEFINED"}):
            async with Subscription(switch, "STREAM", (f"{model}/config", fields)) as stream:
                assert await stream.next() is True
                for delay in (5000, 6000):
                    await asyncio.to_thread(switch.set, update={f"{model}/config/delay": delay})
                    assert await stream.next() == {"delay": delay}
                await asyncio.to_thread(switch.set, delete=[model])
                assert await stream.next() == {"delay": None}

    switch.run(streams)


def test_subscriptions_that_cannot_be_served(switch: Switch) -> None:
    path = "/interfaces/interface/state/id"
    invalid = grpc.StatusCode.INVALID_ARGUMENT

    async def streams(_: GNMIClient) -> None:
        for code, text, mode, subscriptions in (
            (invalid, "sample_interval: at least 10 ms", "STREAM", [(path, {"mode": "SAMPLE", "sample_interval": 1})]),
            (invalid, "TARGET_DEFINED has no sample_interval", "STREAM", [(path, {"sample_interval": SECOND})]),
            (invalid, "heartbeat_interval: at least", "STREAM", [(path, {"heartbeat_interval": 1})]),
            (grpc.StatusCode.UNIMPLEMENTED, "no such node", "ONCE", [("/system", {})]),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "at most 64", "ONCE", [(path, {})] * 65),
        ):
            async with Subscription(switch, mode, *subscriptions) as stream:
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await stream.next()
                assert failure.value.code() == code and text in (failure.value.details() or "")
        async with Subscription(switch, "STREAM", (path, {"mode": "ON_CHANGE"})) as stream:
            await stream.call.write(gnmi.SubscribeRequest(poll=gnmi.Poll()))
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                while True:
                    await stream.next()
            assert failure.value.code() == invalid

    switch.run(streams)


def test_drops_are_read_and_watched_by_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "left_in.pcap")
    descriptor = os.open(tmp_path / "left_in.pcap", os.O_RDWR)  # opens without a reader
    with os.fdopen(descriptor, "wb", buffering=0) as wire, started(tmp_path) as switch:
        wire.write(PCAP)

        async def streams(_: GNMIClient) -> None:
            fields = {"mode": "ON_CHANGE"}
            async with Subscription(switch, "STREAM", (DROPS, fields), updates_only=True) as stream:
                assert await stream.next() is True
                wire.write(records([TO_NOBODY] * 3))
                seen: dict[str, Any] = {}
                while seen.get("no-port") != 3:
                    update = await stream.next()
                    assert isinstance(update, dict)
                    seen |= update
                assert set(seen) == {"no-port"}
            often = {"mode": "SAMPLE", "sample_interval": SECOND // 50}
            async with Subscription(switch, "STREAM", (f"{DROPS}/no-port", often)) as stream:
                assert [await stream.next() for _ in range(3)] == [{"no-port": 3}, True, {"no-port": 3}]
            async with Subscription(switch, "ONCE", (f"{DROPS}/no-port", {})) as stream:
                assert [await stream.next() for _ in range(3)] == [{"no-port": 3}, True, None]

        switch.run(streams)
        assert switch.get(f"{DROPS}/no-port", "JSON_IETF").popitem()[1] == "3"
        assert switch.get("/pipeline-counters", kind="OPERATIONAL") == switch.get(DROPS)
        # All reasons are there, and nothing else was lost.
        reasons = {path.rsplit("/", 1)[1]: value for path, value in switch.get(DROPS).items()}
        assert len(reasons) > 10 and sum(reasons.values()) == reasons["no-port"] == 3
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        refused(invalid, "state is not for setting", lambda: switch.set(update={f"{DROPS}/no-port": 0}))


@pytest.mark.skipif(not shutil.which("gnmic"), reason="gnmic is not on PATH")
def test_gnmic_does_what_the_page_says(switch: Switch) -> None:
    page = (ROOT / "docs/switch/queues.md").read_text().replace("127.0.0.1:9559", switch.address)
    commands = [shlex.split(line) for line in page.replace("veth2", switch.right).splitlines() if line[:6] == "gnmic "]
    capabilities, get, set_, subscribe, add, remove = commands
    answers = [
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT).stdout
        for command in (capabilities, get, set_)
    ]
    assert "openconfig-qos" in answers[0] and "JSON_IETF" in answers[0]
    found = json.loads(answers[1])[0]["updates"][0]["values"]["qos/interfaces/interface/output/queues"]
    assert {queue["name"] for queue in found["openconfig-qos:queue"]} >= {"0", "1", "7"}
    path = json.loads(answers[2])["results"][0]["path"]
    assert switch.get(f"/{path}") == {f"/{path}": 20_000_000}
    # Files do not come, but who is not there may go.
    assert subprocess.run(add, capture_output=True, timeout=WAIT).returncode != 0
    subprocess.run(remove, capture_output=True, check=True, timeout=WAIT)
    with subprocess.Popen(subscribe, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout
            states = (line.split('"')[-2] for line in client.stdout if '/state/oper-status": ' in line)
            assert [next(states), next(states)] == ["UP", "UP"]
            switch.set(update={f"/interfaces/interface[name={switch.left}]/config/enabled": False})
            assert next(states) == "DOWN"
        finally:
            client.kill()


def wild(*names: str) -> gnmi.Path:
    return gnmi.Path(elem=[gnmi.PathElem(name=name) for name in names])


def test_wildcards_upon_wildcards_are_answered_at_once(switch: Switch) -> None:
    began = time.monotonic()
    for names in (["..."] * 20, ["..."] * 32, ["*", "...", "*", "...", "name"]):
        answer = switch.stub.Get(gnmi.GetRequest(path=[wild(*names)], encoding="PROTO"), timeout=WAIT)
        assert answer.notification[0].update
    assert time.monotonic() - began < 60
    # What packets have waited is told from a second after the first on: then as many leaves stay.
    assert eventually(lambda: f"{switch.queue(0)}/sojourn-p99" in switch.get("/"))
    whole = len(switch.get("/"))
    deep = gnmi.GetRequest(path=[wild(*["..."] * 32)] * 64, encoding="PROTO")
    assert sum(len(part.update) for part in switch.stub.Get(deep).notification) == 64 * whole


def test_what_may_be_asked_for_at_once_has_an_end(switch: Switch) -> None:
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    policies = {f"{POLICY.format(number)}/config/name": str(number) for number in range(1025)}
    for text, call in (
        ("33 steps", lambda: switch.stub.Get(gnmi.GetRequest(path=[wild(*["..."] * 33)]))),
        ("of 5000 bytes", lambda: switch.stub.Get(gnmi.GetRequest(path=[wild("x" * 5000)]))),
        ("65 paths", lambda: switch.stub.Get(gnmi.GetRequest(path=[wild("interfaces")] * 65))),
        ("1025 operations", lambda: switch.set(update=policies)),
        (
            "a text or key of 300 bytes",
            lambda: switch.set(update={POLICY.format("x" * 300) + "/config/name": "x" * 300}),
        ),
    ):
        refused(exhausted, text, call)
    entries = [{"name": str(number), "config": {"name": str(number)}} for number in range(17_000)]
    refused(exhausted, "leaves", lambda: switch.set(update={"/qos/scheduler-policies": {"scheduler-policy": entries}}))
    # Policies that nobody uses cost what they are, not what all of them are together.
    began = time.monotonic()
    switch.set(update={"/qos/scheduler-policies": {"scheduler-policy": entries[: 1 << 13]}})
    assert time.monotonic() - began < WAIT
    assert len(switch.get("/qos/scheduler-policies/scheduler-policy/config/name")) == (1 << 13) + 1
