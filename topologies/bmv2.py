# SPDX-License-Identifier: Apache-2.0
"""BMv2's queues: their rates and depths, which its P4Runtime cannot set, over its Thrift interface.

A queue of BMv2 has a rate in packets per second, each of a port's eight its own, and none is charged for what another
one sends. So the port's link is a wire behind the switch, exact in bits, and the bulk queue is paced to what the
priority queues leave of it: then the queue stands in the switch, where the program's priorities, counters and feedback
act, and not in front of the wire.
"""

import socket
import struct

from accesspoint.topologies.requirements import LabError

FULL_FRAME = 1514  # bytes
ACK_FRAME = 66  # bytes: an ACK with timestamps over IPv4; receivers send one per two full frames (RFC 9293, 3.8.6.3)
USABLE = 0.98  # of the link: what is left over empties the wire's own queue again
ACKS_LIMIT = 0.6  # of the link: the controller lets no more ACKs than that into the priority queue
MIN_PACE = 4  # packets/s: below it whole packets are too coarse a unit
TIMEOUT = 10.0  # s


def bulk_pace(rate: int, opposite: int) -> int:
    """Full frames per second that a port of `rate` may send in addition to the ACKs for the data that flows the other
    way at `opposite` (both bit/s). Raises LabError for a link that is too slow."""
    acks = min(opposite * ACK_FRAME / (2 * FULL_FRAME), ACKS_LIMIT * rate)
    pace = int((USABLE * rate - acks) / (8 * FULL_FRAME))
    if pace < MIN_PACE:
        raise LabError(
            f"a link of {rate / 1e3:g} kbit/s is too slow for BMv2, whose queues count whole packets: "
            f"give at least 130kbit, or take TARGET=apswitch"
        )
    return pace


def set_pace(thrift: int, port: int, packets_per_second: int, queue: int | None = None) -> None:
    """Set the rate of one queue of a port, or of each of its queues; 0: unlimited. thrift: TCP port. Raises
    LabError."""
    if queue is None:
        _call(thrift, "set_egress_queue_rate", struct.pack(">bhibhq", 8, 1, port, 10, 2, packets_per_second))
    else:
        fields = struct.pack(">bhibhibhq", 8, 1, port, 8, 2, queue, 10, 3, packets_per_second)
        _call(thrift, "set_egress_priority_queue_rate", fields)


def set_depth(thrift: int, port: int, packets: int) -> None:
    """Set the limit of each queue of a port. thrift: TCP port. Raises LabError."""
    _call(thrift, "set_egress_queue_depth", struct.pack(">bhibhi", 8, 1, port, 8, 2, packets))


def _call(thrift: int, method: str, fields: bytes) -> None:
    """A call of BMv2's simple_switch.thrift in Thrift's binary protocol: a field is its type (8: i32, 10: i64), its
    number and its value; the answer's last field is the result, 0 for success."""
    name = f"simple_switch:{method}".encode()
    message = struct.pack(f">Ii{len(name)}si", 0x80010001, len(name), name, 0) + fields + b"\0"
    try:
        with socket.create_connection(("127.0.0.1", thrift), timeout=TIMEOUT) as connection:
            connection.sendall(message)
            answer = connection.recv(1024)
    except OSError as error:
        raise LabError(
            f"BMv2's Thrift interface does not answer at port {thrift} ({error}): build simple_switch_grpc with Thrift "
            "(configure --with-thrift, or WITH_THRIFT with CMake)"
        ) from None
    if answer[-8:] != struct.pack(">bhib", 8, 0, 0, 0):
        raise LabError(f"BMv2 refuses {method}: {answer!r}")
