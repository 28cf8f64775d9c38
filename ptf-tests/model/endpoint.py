# SPDX-License-Identifier: Apache-2.0
"""A TCP endpoint (RFC 9293) that does what a script says, and answers what it is given.

It has no congestion control and no timer of retransmissions: it sends what the peer's window allows, and repeats when
the script says so. Delayed ACKs are the network's to call (`flush`). Time is an argument, in ms, for timestamps.
"""

from collections import deque
from dataclasses import dataclass

from accesspoint.ptf_tests.model.frames import ACK, FIN, PSH, RST, SYN
from accesspoint.ptf_tests.model.knowledge import Knowledge, merge
from accesspoint.ptf_tests.model.segments import CWR, ECE, Segment, max_payload, option_bytes

NO_ECN, CLASSIC, DCTCP, ACCURATE = range(4)
FIRST_ACE = 5  # RFC 9768, 3.2.1: what the counter begins with
MAX_RAW_WINDOW = 65535
MAX_BLOCKS = 3  # SACK blocks beside timestamps


@dataclass(frozen=True)
class Options:
    """The agreement of both ends in their handshake."""

    version: int = 4
    timestamps: bool = False
    sack: bool = True
    ecn: int = NO_ECN


@dataclass(frozen=True)
class Host:
    """One end's own settings. buffer: of the receiver, in full segments. every: data segments for an ACK."""

    buffer: int = 64
    scale: int = 7
    every: int = 2
    clock: int = 0


class Endpoint:
    """One end of one connection."""

    def __init__(self, options: Options, host: Host, iss: int) -> None:
        self.options, self.host, self.iss = options, host, iss
        self.mss = max_payload(options.version, options.timestamps)
        self.buffer = host.buffer * self.mss
        self.scale = host.scale
        self.knows = Knowledge(iss)
        self.state = "closed"
        self.snd_nxt = iss
        self.irs = self.rcv_nxt = 0
        self.unread = 0
        self.stalled = False
        self.pending = 0
        self.unacked: deque[tuple[int, int, int]] = deque()
        self.queue: deque[int] = deque()
        self.closing = False
        self.beyond: list[tuple[int, int]] = []
        self.latest: tuple[int, int] | None = None
        self.echo = 0
        self.ece = False
        self.episode = 0
        self.marks = 0
        self.cwr_next = False
        self.marking = 0
        self.advertised = 0
        self.now = 0

    @property
    def established(self) -> bool:
        """Return whether the end may send data."""
        return self.state == "established"

    def open(self) -> list[Segment]:
        """Send SYN."""
        self.state = "syn sent"
        return [self._begin(SYN)]

    def _begin(self, flags: int) -> Segment:
        self.snd_nxt = self.iss + 1
        self.unacked.append((self.iss, 0, flags))
        return self._segment(self.iss, flags)

    def write(self, count: int, size: int) -> list[Segment]:
        """Send so many segments, as soon as handshake and window allow; size 0 is a full one."""
        if self.state == "reset" or self.closing:
            return []
        self.queue.extend([min(size or self.mss, self.mss)] * count)
        return self.pump()

    def close(self) -> list[Segment]:
        """Send FIN behind what is to be sent."""
        if self.state == "reset" or self.closing:
            return []
        self.closing = True
        return self.pump()

    def reset(self) -> list[Segment]:
        """Abort."""
        if self.state in ("reset", "closed", "syn sent"):
            return []
        self.state = "reset"
        return [self._segment(self.snd_nxt, RST | ACK)]

    def stall(self) -> list[Segment]:
        """The application stops reading."""
        self.stalled = True
        return []

    def read(self) -> list[Segment]:
        """The application reads all that is there; the window is announced if that opens it by much."""
        self.stalled = False
        gained, self.unread = self.unread, 0
        opened = gained >= min(2 * self.mss, self.buffer // 2)
        return [self._ack()] if gained and opened and self.irs and self.state != "reset" else []

    def keep_alive(self) -> list[Segment]:
        """Probe the peer with the number before the next (RFC 9293, 3.8.4)."""
        if not self.established:
            return []
        probe = self._segment(self.snd_nxt - 1, ACK)
        return [*self.flush(), probe]

    def time_out(self) -> list[Segment]:
        """Send the oldest segment that is not acknowledged again."""
        while self.unacked and self._behind(self.unacked[0]) <= self.knows.una:
            self.unacked.popleft()
        if not self.unacked or self.state == "reset":
            return []
        self.cwr_next = True
        seq, length, flags = self.unacked[0]
        return [self._segment(seq, flags, length)]

    def skip(self, sent: int, received: int) -> None:
        """Move on as if so many bytes had been exchanged, and acknowledged on data or behind another access point."""
        self.snd_nxt += sent
        self.rcv_nxt += received
        self.unacked.clear()
        self.beyond.clear()
        self.knows.una = self.snd_nxt
        self.knows.wl1, self.knows.wl2 = self.rcv_nxt, self.snd_nxt
        if self.knows.rcv_nxt is not None:
            self.knows.rcv_nxt = self.rcv_nxt

    def flush(self) -> list[Segment]:
        """Send the ACK that was delayed."""
        return [self._ack()] if self.pending and self.state != "reset" else []

    def pump(self) -> list[Segment]:
        """Send what handshake and window allow."""
        sent = []
        if self.established:
            limit = self.knows.una + self.knows.window
            while self.queue and self.snd_nxt + self.queue[0] <= limit:
                length = self.queue.popleft()
                self.unacked.append((self.snd_nxt, length, ACK | PSH))
                sent.append(self._segment(self.snd_nxt, ACK | PSH, length))
                self.snd_nxt += length
            if self.closing and not self.queue:
                self.state = "closing"
                self.unacked.append((self.snd_nxt, 0, ACK | FIN))
                sent.append(self._segment(self.snd_nxt, ACK | FIN))
                self.snd_nxt += 1
        return sent

    def receive(self, number: int, segment: Segment) -> list[Segment]:
        """Answer a segment."""
        if self.state == "reset" or (self.state in ("closed", "syn sent") and not segment.flags & SYN):
            return []
        if not self.knows.receive(number, segment):
            return [self._ack()]  # RFC 5961, 5.2; RFC 7323, 5.3
        if segment.flags & RST:
            self.state = "reset"
            return []
        if segment.ts and segment.seq <= self.rcv_nxt:
            self.echo = max(self.echo, segment.ts[0])
        if segment.flags & SYN:
            return self._receive_syn(segment)
        if self.state == "syn received" and self.knows.una > self.iss:
            self.state = "established"
        answers = self._receive_data(segment) if segment.length or segment.flags & FIN else []
        if not segment.length and segment.seq == self.rcv_nxt - 1 and not segment.flags & FIN:
            answers.append(self._ack())  # of a keepalive
        if segment.flags & ECE and not segment.accurate and segment.ack > self.knows.una - 1:
            self.cwr_next = True
        return answers + self.pump()

    def _receive_syn(self, segment: Segment) -> list[Segment]:
        self.irs, self.rcv_nxt = segment.seq, max(segment.seq + 1, self.rcv_nxt)
        self.echo = segment.ts[0] if segment.ts else 0
        if self.state == "closed":
            self.state = "syn received"
            return [self._begin(SYN | ACK)]
        if self.state == "syn sent":
            self.state = "established"
            return [self._ack(), *self.pump()]
        if self.state == "syn received" and not segment.flags & ACK:
            return [self._segment(self.iss, SYN | ACK)]
        return [self._ack()]

    def _receive_data(self, segment: Segment) -> list[Segment]:
        answers: list[Segment] = []
        if segment.flags & CWR:
            self.ece = False
        at_once = False
        if self.options.ecn == DCTCP and segment.ce != self.ece and segment.length:  # RFC 8257, 3.2
            answers += self.flush()
            self.ece, at_once = segment.ce, True
            self.episode += segment.ce
        if segment.ce:
            self.marks += 1
            if self.options.ecn == CLASSIC and not self.ece:
                self.ece = True
                self.episode += 1
        one, other = segment.seq, segment.end
        if other <= self.rcv_nxt:
            return [*answers, self._ack(duplicate=(one, one + segment.length) if segment.length else None)]
        if one > self.rcv_nxt:
            if other > self.rcv_nxt + self.buffer:
                return [*answers, self._ack()]
            self.beyond = merge([*self.beyond, (one, other)])
            self.latest = one, other
            return [*answers, self._ack()]
        filled = bool(self.beyond)
        before, self.rcv_nxt = self.rcv_nxt, other
        while self.beyond and self.beyond[0][0] <= self.rcv_nxt:
            self.rcv_nxt = max(self.rcv_nxt, self.beyond.pop(0)[1])
        if self.stalled:
            self.unread += self.rcv_nxt - before
        self.pending += 1
        if filled or at_once or segment.flags & FIN or self.pending >= self.host.every:
            answers.append(self._ack())
        return answers

    def _ack(self, duplicate: tuple[int, int] | None = None) -> Segment:
        """An ACK with no data, and with the blocks that SACK has room for."""
        blocks: list[tuple[int, int]] = []
        if self.options.sack:
            if duplicate:
                blocks.append(duplicate)
            held = sorted(self.beyond, key=lambda block: not (self.latest and block[0] <= self.latest[0] < block[1]))
            blocks += held[: MAX_BLOCKS - len(blocks)]
        return self._segment(self.snd_nxt, ACK, sack=tuple(blocks), dsack=bool(blocks) and duplicate is not None)

    def _segment(
        self, seq: int, flags: int, length: int = 0, sack: tuple[tuple[int, int], ...] = (), dsack: bool = False
    ) -> Segment:
        scale = 0 if flags & SYN else self.scale
        raw = min(max(0, self.buffer - self.unread) >> scale, MAX_RAW_WINDOW)
        segment = Segment(seq, self.rcv_nxt, flags, length, raw << scale, raw, sack=sack, dsack=dsack)
        segment.start = self.iss, self.irs
        segment.scale, segment.sack_permitted = self.scale, self.options.sack
        if self.options.timestamps and not flags & RST:
            segment.ts = self.host.clock + self.now, self.echo
        if self.options.ecn == ACCURATE and not flags & (SYN | RST):
            segment.marks, segment.accurate = self.marks, FIRST_ACE + self.marks & 7 | 8
        elif self.options.ecn and self.ece and flags & ACK and not flags & SYN:
            segment.flags |= ECE
            segment.episode = self.episode
        if length:
            segment.ecn_capable = bool(self.options.ecn)
            if self.cwr_next and self.options.ecn == CLASSIC:
                segment.flags |= CWR
                self.cwr_next = False
            if self.marking:
                self.marking -= 1
                segment.ce = bool(self.options.ecn)
        segment.options = option_bytes(segment)
        if flags & ACK:
            self.pending = 0
        return segment

    @staticmethod
    def _behind(sent: tuple[int, int, int]) -> int:
        seq, length, flags = sent
        return seq + length + (flags & (SYN | FIN) > 0)
