# SPDX-License-Identifier: Apache-2.0
"""One cell of 802.11g that terminals upload through, as papers 002 and 004 describe it: what is scarce is the way back.

Every station, the access point among them, gets the same number of frames through ("even sending opportunity", paper
004, section II.C). With n terminals that send all the time the access point's ACKs get 1/(n+1) of the frames, where one
ACK for two data packets needs a third of them.
"""

from topologies.dcf import PAYLOAD
from topologies.profiles import LinkProfile

BANDWIDTH = 19.0  # Mb/s of payload: BW_max of paper 002
FRAME, ACK = 1514, 66  # octets, with TCP timestamps
DATA_PER_ACK = 2  # delayed ACKs (RFC 5681, section 4.2)


def cell(terminals: int, rtt: float, buffer: int = 256, upload_queue: int = 1000) -> LinkProfile:
    """The cell with that many terminals. rtt: of the wired side (s). buffer: of the access point, in packets."""
    data = BANDWIDTH * 1e6 / 8 / PAYLOAD  # frames/s
    frames = data * (1 + 1 / DATA_PER_ACK)
    acks = frames / (terminals + 1)
    return LinkProfile(
        "802.11g", round(acks * ACK * 8), round(data * FRAME * 8),
        rtt=rtt, down_limit=buffer, up_limit=upload_queue, shared=True,
    )  # fmt: skip


DIFFERENCES = (
    "one cell, without radio: data shares a link of 19 Mb/s of payload, ACKs one of 1/(n+1) of the frames",
    "terminals are Linux hosts of today (SACK, RACK, ACKs of two segments), not Android phones of 2012",
)
