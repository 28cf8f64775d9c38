# SPDX-License-Identifier: Apache-2.0
"""gNMI of the switch: paths that match too much, subscriptions, sets."""

import time
from collections.abc import Iterator
from typing import Any

from finsy.proto import gnmi, gnmi_grpc

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import hold, leave, many, mutations, throw

ANY = gnmi.PathElem(name="...")


def path(*names: str) -> Any:
    return gnmi.Path(elem=[gnmi.PathElem(name=name) for name in names])


def get(*paths: Any, encoding: str = "PROTO") -> bytes:
    return gnmi.GetRequest(path=paths, encoding=encoding).SerializeToString()


GET, SET = "/gnmi.gNMI/Get", "/gnmi.gNMI/Set"


@attack("switch", seconds=6, short=True)
def gnmi_get_of_20_wildcards(target: Target) -> None:
    """A gNMI Get of 145 bytes whose path is 20 elements `...`"""
    many(target, GET, [get(path(*["..."] * 20))], connections=1, at_once=1)


@attack("switch", seconds=6)
def gnmi_get_of_24_wildcards(target: Target) -> None:
    """A gNMI Get of 173 bytes whose path is 24 elements `...`, on four connections"""
    many(target, GET, [get(path(*["..."] * 24))], connections=4, at_once=1)


@attack("switch", seconds=5)
def gnmi_gets_begun_and_left(target: Target) -> None:
    """gNMI Gets of everything, by wildcards, begun and cancelled over and over"""
    leave(target, GET, [get(path(*["..."] * 20)), get(*[path("...")] * 1000)])


@attack("switch", seconds=5)
def gnmi_get_of_many_paths(target: Target) -> None:
    """gNMI Gets of 5000 paths to everything each"""
    many(target, GET, [get(*[path("...")] * 5000), get(*[path("*", "...", "*")] * 5000)], connections=4, at_once=4)


@attack("switch", seconds=5)
def gnmi_get_of_a_deep_path(target: Target) -> None:
    """gNMI Gets of a path of 100,000 elements, or with 100,000 keys"""
    deep = get(path(*["interfaces"] * 100_000))
    wild = get(path(*["*", "..."] * 50_000))
    keys = gnmi.PathElem(name="interface", key={f"k{number}": "*" for number in range(100_000)})
    keyed = get(gnmi.Path(elem=[gnmi.PathElem(name="interfaces"), keys]))
    many(target, GET, [deep, wild, keyed], connections=2, at_once=2)


@attack("switch", seconds=5)
def gnmi_subscriptions(target: Target) -> None:
    """600 gNMI subscriptions to everything every millisecond, whose answers nobody reads"""

    def request() -> Iterator[Any]:
        all_of_it = gnmi.Subscription(path=path("..."), mode="SAMPLE", sample_interval=1_000_000)
        yield gnmi.SubscribeRequest(subscribe=gnmi.SubscriptionList(subscription=[all_of_it] * 50, mode="STREAM"))
        time.sleep(target.left())

    hold(
        target,
        lambda here: gnmi_grpc.gNMIStub(here).Subscribe(request(), timeout=target.left()),
        connections=12,
        each=50,
        unread=True,
    )


@attack("switch", seconds=4)
def gnmi_sets(target: Target) -> None:
    """gNMI Sets of 20,000 values, of policies without end and of JSON 5000 deep"""
    enabled = gnmi.Update(path=path("interfaces", "interface", "config", "enabled"))
    enabled.val.bool_val = True
    policies = gnmi.SetRequest()
    for number in range(20_000):
        name = gnmi.PathElem(name="scheduler-policy", key={"name": str(number)})
        update = policies.update.add(
            path=gnmi.Path(elem=[gnmi.PathElem(name="qos"), gnmi.PathElem(name="scheduler-policies"), name])
        )
        update.val.json_ietf_val = b'{"config":{"name":"%d"}}' % number
    deep = gnmi.SetRequest()
    deep.update.add(path=path("qos")).val.json_ietf_val = b'{"a":' * 5000 + b"1" + b"}" * 5000
    many(
        target,
        SET,
        [
            gnmi.SetRequest(update=[enabled] * 20_000).SerializeToString(),
            policies.SerializeToString(),
            deep.SerializeToString(),
        ],
        connections=2,
        at_once=1,
    )


@attack("switch", seconds=6, spare=("spare1", "spare2", "spare3", "spare4"))
def gnmi_ports_come_and_go(target: Target) -> None:
    """Ports added and removed over gNMI without end, by eight at once"""
    add, remove = gnmi.SetRequest(), gnmi.SetRequest()
    for number, name in enumerate(target.places["spare"], 11):
        interface = path("interfaces", "interface")
        interface.elem[1].key["name"] = name
        remove.delete.append(interface)
        with_id = gnmi.Path(elem=[*interface.elem, gnmi.PathElem(name="config"), gnmi.PathElem(name="id")])
        add.update.add(path=with_id).val.uint_val = number
    requests = [add.SerializeToString(), remove.SerializeToString()]
    many(target, SET, requests, connections=4, at_once=2)


@attack("switch")
def gnmi_mutations(target: Target) -> None:
    """Random mutations of valid gNMI requests"""
    update = gnmi.Update(path=path("interfaces"))
    update.val.json_ietf_val = b'{"interface":[{"name":"switch1","config":{"enabled":true}}]}'
    valid = {
        GET: [
            get(path("interfaces", "interface", "state")),
            get(path("...", "name"), encoding="JSON_IETF"),
            get(path("*")),
        ],
        SET: [gnmi.SetRequest(update=[update], delete=[path("qos", "scheduler-policies")]).SerializeToString()],
    }
    throw(target, mutations(target, valid))
