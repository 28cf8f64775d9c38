# SPDX-License-Identifier: Apache-2.0
"""The targets of the packet tests: how each is started, and how its port 4 is made slow.

All that tests must not know is here, or in the controller's adapter. A target that cannot do something says so in
`cannot`: {test: reason}.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from accesspoint.controller.agent import target as adapter
from accesspoint.ptf_tests.lib.ports import PORTS, SLOW
from accesspoint.topologies import bmv2, targets
from accesspoint.topologies.requirements import LabError

ROOT = Path(__file__).resolve().parent.parent
GRPC_ADDRESS = "127.0.0.1:9559"
THRIFT_PORT = 9090
SLOW_FRAMES = 5  # frames of 1000 bytes per second
CONNECTIONS_FRAMES = 200  # frames per second when modelled connections are run
SLOW_QUEUE = 64  # packets that its queues hold, as in BMv2 each of them does
ACK_QUEUE = 7
CONNECTIONS_LINK = f"rate={CONNECTIONS_FRAMES * 1000 * 8}bit,limit={SLOW_QUEUE}"


class MissingTargetError(Exception):
    """A target that is missing or too old; the text names the fix."""


def as_it_is() -> None:
    """Leave a target's ports as fast as they are. A name, as processes that share the tests get it by that."""


@dataclass(frozen=True)
class Target:
    """A switch that runs the program.

    links: its link model by port. slow_down: called after the pipeline is pushed; slow_for_connections: in its place
    when modelled connections are run, which take a slow port less slow. p4info, device_config: names of the
    compiled program's files; a device config in the vendor's format has none.
    """

    name: str
    arch: str = "v1model"
    p4info: str = "ap.p4info.txtpb"
    device_config: str | None = "ap.json"
    links: dict[int, str] = field(default_factory=dict)
    slow_down: Callable[[], None] = as_it_is
    slow_for_connections: Callable[[], None] = as_it_is
    cannot: dict[str, str] = field(default_factory=dict)

    def numbers(self) -> dict[str, object]:
        """Return the numbers of the target's architecture: the CPU port, the ACK filter's sessions and their ports."""
        own = adapter.TARGETS[self.arch]
        sessions = own.ack_sessions(PORTS)
        return {
            "cpu_port": own.cpu_port,
            "ack_sessions": {session.session_id: session.replicas[0] for session in sessions},
        }

    def version(self) -> str:
        """Version of the target. Raises MissingTargetError when it is not installed or too old."""
        try:
            return targets.find(self.name).version()
        except LabError as error:
            raise MissingTargetError(error) from None

    def command(self, interfaces: dict[int, str], log: Path) -> list[str]:
        """The command line. interfaces: by port."""
        wiring = targets.Wiring(interfaces, GRPC_ADDRESS, THRIFT_PORT, log=log, links=self.links)
        return targets.TARGETS[self.name].command(wiring)


class Elsewhere(Target):
    """A target that is not started here: the vendor's model, or hardware."""

    def version(self) -> str:
        raise MissingTargetError(
            f"{self.name} is not started here: start the vendor's model or the hardware with its P4Runtime server, let "
            f"its port {SLOW} send {SLOW_FRAMES * 1000 * 8} bit/s and hold {SLOW_QUEUE} packets, and name both with "
            f"--address HOST:PORT, --device-config FILE and --interface PORT@NAME for ports {PORTS[0]} to {PORTS[-1]}"
        )


GATE_OF_BYTES = "its gate is a virtual queue of full frames, and the test's frames are smaller"
GATES_THAT_COUNT_PACKETS = (
    "GateClosesAtItsBuffer",
    "GateAdmitsInBatches",
    "OpenGateAdmitsSinglePackets",
    "WithoutGateNothingIsRefused",
    "FilteredAckGivesBackItsPlace",
    "RefusedAckSupersedesNothing",
    "LostPacketGivesBackItsPlace",
    "DroppedPacketTakesNoPlace",
)

DECIDED_BESIDE = "it decides on marks next to the meter of the queue, not behind it"
NO_HOLD = "it turns packets of no known flow away one by one: there is no stage left for the hold"
TESTS_OF_THE_HOLD = ("WhatIsOfNoFlowIsNotSplit", "WhatIsHeldIsRegulated", "OpaqueBulkKeepsItsOrder")
NO_RUN = (
    "its ACK memory has a run, but no space for ECN flags and a window, and ingress knows no depth; ACKs that say "
    "anything of ECN are kept"
)
TESTS_OF_THE_RUN = (
    "EcnIsNeverLost",
    "EachChangeOfEcnIsKept",
    "WhatIsRememberedWronglyIsForgotten",
    "StragglerOfAnEarlierConnectionIsForgotten",
    "LostAckSupersedesNothing",
    "WhoIsAWindowBehindIsAhead",
    "WhoIsAWindowAheadBeginsARun",
    "FilterCanComeBack",
)

NO_ORDER = "egress sends ingress nothing, so ACKs do not wait for their connection's own data"
TESTS_OF_OWN_DATA = (
    "AckWithinTheWindowGoesFirst",
    "WindowsAreScaled",
    "WindowsAreScaledOfIpv6",
    "BothEndsScaleOrNone",
    "WhatWaitsSaysNoLessThanItsFirst",
    "LateDataCountsUntilItHasLeft",
    "WindowOfTheSynCounts",
    "ConnectionOnUsedPortsOwesNothing",
)

NO_LANES = "it has no lanes: all bulk of a port is one queue"
LANES_ARE_SET = "its traffic manager has the weights and rates of its lanes, not its packets"
TESTS_OF_SHARES = "LanesShareByWeight", "LaneKeepsItsRate"
FLOWS_OF_A_LANE = "FlowsOfALaneTakeTurns"
NO_DEPTH = "its ingress knows the depth of no lane: the port's feedback is for all bulk"
TESTS_OF_DEPTHS = (
    "MarksSpareALaneWithoutAQueue",
    "MarksFromNoDepthOn",
    "LaneOfTheReceiverCounts",
    "MarksAreForWhoMakesTheQueue",
    "DepthIsOfTheBulk",
)


def pace_connections() -> None:
    """Pace BMv2's queues so that ACKs go before bulk: each has a rate of its own, and none waits for another."""
    bmv2.set_pace(THRIFT_PORT, SLOW, CONNECTIONS_FRAMES)
    bmv2.set_pace(THRIFT_PORT, SLOW, 8 * CONNECTIONS_FRAMES, ACK_QUEUE)


# BMv2 has no rate and no limit of a port, only of each of its queues, in packets.
OF_QUEUES = "each of its queues has a rate and a limit of its own: none waits for another, and none makes space for it"
TARGETS = {
    "apswitch": Target("apswitch", links={SLOW: f"rate={SLOW_FRAMES * 1000 * 8}bit,limit={SLOW_QUEUE}"}),
    "bmv2": Target(
        "bmv2",
        slow_down=partial(bmv2.set_pace, THRIFT_PORT, SLOW, SLOW_FRAMES),
        slow_for_connections=pace_connections,
        cannot={
            "test_gate.LostPacketGivesBackItsPlace": "its P4Runtime server neither reads nor writes registers",
            "test_ack.FullPortDropsBulkFirst": OF_QUEUES,
            "test_group.OpaqueBulkKeepsItsOrder": OF_QUEUES,
        }
        | {f"test_lanes.{test}": NO_LANES for test in (*TESTS_OF_SHARES, FLOWS_OF_A_LANE)},
    ),
    "tofino": Elsewhere(
        "tofino",
        arch="tna",
        p4info="ap_tna.p4info.txtpb",
        device_config=None,
        cannot={f"test_gate.{test}": GATE_OF_BYTES for test in GATES_THAT_COUNT_PACKETS}
        | {f"test_group.{test}": NO_HOLD for test in TESTS_OF_THE_HOLD}
        | {f"test_filter.{test}": NO_RUN for test in TESTS_OF_THE_RUN}
        | {f"test_own_data.{test}": NO_ORDER for test in TESTS_OF_OWN_DATA}
        | {f"test_lanes.{test}": NO_DEPTH for test in TESTS_OF_DEPTHS}
        | {f"test_lanes.{test}": LANES_ARE_SET for test in TESTS_OF_SHARES}
        | {f"test_lanes.{FLOWS_OF_A_LANE}": "its lanes are queues, and have none for flows"}
        | {"test_classify.DemotedPacketIsRegulated": DECIDED_BESIDE}
        | {"test_model.ProgramFollowsThePolicy": "the model has the gate, the hold and the ACK memory of v1model"}
        | {"test_flows.UnusedFlowAges": "its flow tables have no idle timeout; the controller goes by their counters"},
    ),
}
