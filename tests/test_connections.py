# SPDX-License-Identifier: Apache-2.0
"""The model of connections: its FIFO, its endpoints, what an end knows, and the judge, each on its own."""

from typing import Any

import pytest

from accesspoint.ptf_tests.model.endpoint import ACCURATE, CLASSIC, DCTCP, Endpoint, Host, Options
from accesspoint.ptf_tests.model.fifo import Fifo
from accesspoint.ptf_tests.model.frames import ACK, FIN, PSH, SYN
from accesspoint.ptf_tests.model.judge import Direction, Judge, Port, Sent
from accesspoint.ptf_tests.model.knowledge import Knowledge
from accesspoint.ptf_tests.model.segments import CWR, ECE, Segment, Way, build_frame, number_of

ISS, PEER = 10_000, 50_000
PLAIN, HOST = Options(), Host()


def ack(number: int, **fields: Any) -> Segment:
    """A pure ACK of the peer."""
    return Segment(**{"seq": PEER, "ack": number, "window": 5000, **fields})


def knowledge(*segments: Segment) -> Knowledge:
    """The knowledge of an end that was given these."""
    made = Knowledge(ISS)
    for number, segment in enumerate(segments):
        made.receive(number, segment)
    return made


def pair(options: Options = PLAIN, client: Host = HOST, server: Host = HOST) -> tuple[Endpoint, Endpoint]:
    """Two ends behind their handshake."""
    ends = Endpoint(options, client, ISS), Endpoint(options, server, PEER)
    exchange(*ends, ends[0].open())
    return ends


def exchange(one: Endpoint, other: Endpoint, sent: list[Segment]) -> list[Segment]:
    """Deliver what the first end has sent, and all that comes of it; return the answers of the second."""
    answers: list[Segment] = []
    turns = [(other, segment) for segment in sent]
    while turns:
        end, segment = turns.pop(0)
        said = end.receive(1, segment)
        answers += said if end is other else []
        turns += [(one if end is other else other, answer) for answer in said]
    return answers


# FIFO


def test_fifo_frames_take_their_time_in_order() -> None:
    fifo = Fifo(lambda size: size, limit=10)
    fifo.arrive(100, 1, 1000)
    fifo.arrive(110, 2, 50)
    fifo.arrive(2000, 3, 50)
    fifo.advance(5000)
    assert fifo.left == {1: 1100, 2: 1150, 3: 2050}


def test_fifo_full_queue_drops_the_tail() -> None:
    fifo = Fifo(lambda size: size, limit=3)
    for number in range(5):
        fifo.arrive(0, number, 1000)
    assert fifo.dropped == {3, 4}  # one is on the wire, two wait
    assert fifo.full_at == [0, 0, 0]


def test_fifo_blocked_wire_sends_after_its_pause() -> None:
    fifo = Fifo(lambda size: size, limit=10)
    fifo.arrive(0, 1, 100)
    fifo.arrive(0, 2, 100)
    fifo.set_blocked(50, True)
    fifo.advance(1000)
    fifo.set_blocked(1050, False)
    fifo.advance(2000)
    assert fifo.left == {1: 1100, 2: 1200}


# Knowledge


def test_knowledge_older_acknowledgment_is_no_news() -> None:
    assert knowledge(ack(12_000), ack(11_000)).una == 12_000


def test_knowledge_ack_more_than_a_window_behind_is_discarded() -> None:
    knows = knowledge(ack(11_000), ack(20_000))
    assert knows.is_acceptable(ack(15_000, length=10, flags=ACK | PSH))
    assert not knows.is_acceptable(ack(14_999, length=10, flags=ACK | PSH))


@pytest.mark.parametrize(
    ("seq", "number", "window"), [(PEER - 1, 13_000, 5000), (PEER, 12_000, 700), (PEER, 13_000, 700)]
)
def test_knowledge_window_is_of_the_newest_segment(seq: int, number: int, window: int) -> None:
    assert knowledge(ack(12_000), ack(number, seq=seq, window=700)).window == window


def test_knowledge_duplicates_have_the_same_number_and_window() -> None:
    wider = ack(11_000, window=6000)
    knows = knowledge(ack(11_000), ack(11_000), wider, ack(11_000, window=6000, length=5), wider)
    assert knows.duplicates == [1, 4]
    knows.receive(9, ack(12_000))
    assert knows.duplicates == []


def test_knowledge_ace_counts_modulo_8() -> None:
    told = [ack(11_000 + marks, marks=marks, accurate=8) for marks in (3, 10, 18)]
    assert knowledge(*told[:2]).marks == 10
    assert knowledge(*told).marks == 10  # eight more look like none


def test_knowledge_old_timestamp_is_discarded() -> None:
    knows = knowledge(Segment(PEER, flags=SYN, ts=(100, 0)))
    assert not knows.is_acceptable(Segment(PEER + 1, ISS, length=5, ts=(99, 0)))
    assert knows.is_acceptable(Segment(PEER + 1, ISS, length=5, ts=(100, 0)))


# Endpoints


def test_endpoint_handshake_establishes_both() -> None:
    client, server = pair()
    assert client.established and server.established
    assert (client.rcv_nxt, server.rcv_nxt) == (PEER + 1, ISS + 1)


def test_endpoint_acknowledges_every_second_segment() -> None:
    client, server = pair()
    sent = server.write(3, 100)
    answers = [answer for segment in sent for answer in client.receive(1, segment)]
    assert [answer.ack for answer in answers] == [PEER + 201]
    assert [answer.ack for answer in client.flush()] == [PEER + 301]


def test_endpoint_gap_is_told_by_duplicates_and_sack() -> None:
    client, server = pair()
    _, second, third = server.write(3, 100)
    answers = client.receive(1, second) + client.receive(2, third)
    assert [answer.ack for answer in answers] == [PEER + 1] * 2
    assert answers[-1].sack == ((PEER + 101, PEER + 301),)


def test_endpoint_repeated_data_is_told_by_dsack() -> None:
    client, server = pair()
    (sent,) = server.write(1, 100)
    client.receive(1, sent)
    (answer,) = client.receive(2, sent)
    assert answer.dsack and answer.sack == ((PEER + 1, PEER + 101),)


def test_endpoint_stalled_reader_shuts_and_opens_the_window() -> None:
    client, server = pair(client=Host(buffer=2, every=1, scale=0))
    client.stall()
    answers = exchange(server, client, server.write(3, 0))
    assert answers[-1].window == 0 and len(server.queue) == 1
    (update,) = client.read()
    assert (update.ack, update.window) == (answers[-1].ack, client.buffer)


def test_endpoint_fin_closes_one_half() -> None:
    client, server = pair()
    exchange(client, server, client.close())
    assert server.rcv_nxt == ISS + 2
    assert exchange(server, client, server.write(2, 100))[-1].ack == PEER + 201


def test_endpoint_probe_is_answered() -> None:
    client, server = pair()
    (answer,) = exchange(client, server, client.keep_alive())
    assert (answer.ack, answer.length) == (ISS + 1, 0)


def test_endpoint_echoes_ce_until_cwr() -> None:
    client, server = pair(Options(ecn=CLASSIC), client=Host(every=1))
    server.marking = 1
    answers = exchange(server, client, server.write(1, 100))
    assert answers[0].flags & ECE and server.cwr_next
    (sent,) = server.write(1, 100)
    assert sent.flags & CWR
    assert not client.receive(1, sent)[0].flags & ECE


def test_endpoint_dctcp_tells_each_change_at_once() -> None:
    client, server = pair(Options(ecn=DCTCP))
    first, second = server.write(2, 100)
    second.ce = True
    assert not client.receive(1, first)
    assert [(answer.ack, answer.flags & ECE > 0) for answer in client.receive(2, second)] == [
        (PEER + 101, False),
        (PEER + 201, True),
    ]


def test_endpoint_accurate_ecn_counts_in_three_bits() -> None:
    client, server = pair(Options(ecn=ACCURATE), client=Host(every=1))
    server.marking = 4
    assert [answer.accurate & 7 for answer in exchange(server, client, server.write(4, 100))] == [6, 7, 0, 1]


@pytest.mark.parametrize("version", [4, 6])
def test_frame_has_number_and_wrapped_numbers(version: int) -> None:
    frame = build_frame(Way(1, 3, 40000, 80, version), 77, Segment((1 << 32) + 5, (2 << 32) + 6, ACK | FIN))
    assert number_of(frame) == 77
    at = 34 if version == 4 else 54
    assert frame[at + 4 : at + 14] == bytes([0, 0, 0, 5, 0, 0, 0, 6, 0x50, ACK | FIN])


# Judge


def judged(*frames: tuple[Segment, int | None, int | None]) -> str:
    """Judge segments by their departures from the FIFO and from the program."""
    port = Port(bulk_time=100, wire_time=lambda size: 10)
    direction = Direction("test", port, ISS, 0)
    for number, (segment, fifo, ours) in enumerate(frames):
        sent = Sent(number, 3, 54, number, segment, fifo, ours)
        port.sent.append(sent)
        direction.frames.append(sent)
    violation = Judge(direction).first_violation()
    return violation.text if violation else ""


def test_judge_superseded_ack_may_be_dropped() -> None:
    assert judged((ack(11_000), 1000, None), (ack(12_000), 1010, 20)) == ""


def test_judge_newest_ack_may_be_a_bulk_packet_late() -> None:
    assert judged((ack(11_000), 1000, 1100)) == ""
    assert judged((ack(11_000), 1000, 1101)).startswith("newest acknowledgment")


def test_judge_lost_newest_ack_is_named() -> None:
    assert judged((ack(11_000), 1000, None)).startswith("newest acknowledgment: +0 in place of +1000")


def test_judge_frame_that_the_fifo_drops_is_not_owed() -> None:
    assert judged((ack(11_000), None, None)) == ""


def test_judge_lost_window_is_named() -> None:
    assert judged((ack(11_000), 10, 10), (ack(11_000, window=0), 20, None)).startswith("newest window")


def test_judge_three_duplicates_are_enough() -> None:
    five = [(ack(11_000), 10 * number, 10 * number if number < 4 else None) for number in range(1, 6)]
    assert judged((ack(11_000), 5, 5), *five) == ""
    assert judged((ack(11_000), 5, 5), *five[:2], *five[3:]).startswith("duplicate ACKs")


def test_judge_lost_dsack_is_named() -> None:
    dsack = Segment(PEER, 11_000, window=5000, sack=((10_500, 10_600),), dsack=True)
    assert judged((dsack, 10, None), (ack(12_000), 20, 5)).startswith("DSACK")


def test_judge_overtaken_data_that_is_discarded_is_named() -> None:
    data = Segment(PEER, 10_100, ACK | PSH, length=100, window=500)
    first = Segment(PEER, 10_100, window=500)
    newer = Segment(PEER + 100, 10_700, window=500)
    assert judged((first, 5, 5), (data, 100, 100), (newer, 200, 50)).startswith("segment #1 was discarded")
    near = Segment(PEER + 100, 10_600, window=500)
    assert judged((first, 5, 5), (data, 100, 100), (near, 200, 50)) == ""
