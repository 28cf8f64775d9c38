# SPDX-License-Identifier: Apache-2.0
"""Reference models of the congestion controls, written from their definitions, not from the programs in hosts/bpf/.

A model is told what the kernel tells the control (`hosts cc record`) and keeps the window and its own state itself.
Windows are in packets, times in µs.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
TX_START, CWND_RESTART, COMPLETE_CWR, LOSS = range(4)
OPEN, DISORDER, CWR, RECOVERY, TIMED_OUT = range(5)
SLOW_PATH = 1
HZ = 250  # overwritten by what the kernel was built with


def signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number


def follows(a: int, b: int) -> bool:
    """Sequence number a comes after b (RFC 9293, section 3.4)."""
    return 0 < (a - b) % (1 << 32) < 1 << 31


@dataclass
class Reno:
    """RFC 5681 as Linux counts it: in packets, and only while the window is what limits the sender."""

    options: dict[str, int]
    cwnd: int = 0
    ssthresh: int = 0
    towards: int = 0  # packets acknowledged since the last increase in congestion avoidance

    @property
    def slow_start(self) -> bool:
        return self.cwnd < self.ssthresh

    def double(self, acked: int, event: Event) -> int:
        """Slow start, up to the threshold. Returns what was acknowledged beyond it."""
        reached = min(self.cwnd + acked, self.ssthresh)
        rest = acked - (reached - self.cwnd)
        self.cwnd = min(reached, event["cwnd_clamp"])
        return rest

    def grow(self, acked: int, event: Event) -> None:
        limited = event["cwnd_limited"] or (self.slow_start and self.cwnd < 2 * event["max_packets_out"])
        if not limited:
            return
        if self.slow_start:
            acked = self.double(acked, event)
            if not acked:
                return
        # A packet for every whole window; an earlier surplus counts first.
        per = self.cwnd
        if self.towards >= per:
            self.towards = 0
            self.cwnd += 1
        self.towards += acked
        whole, self.towards = divmod(self.towards, per)
        self.cwnd = min(self.cwnd + whole, event["cwnd_clamp"])

    # Callbacks of the kernel. Each gets the event as it was before the callback.
    def init(self, event: Event) -> None: ...

    def pkts_acked(self, event: Event) -> None: ...

    def set_state(self, event: Event) -> None: ...

    def cwnd_event(self, event: Event) -> None: ...

    def in_ack_event(self, event: Event) -> None: ...

    def cong_avoid(self, event: Event) -> None:
        self.grow(event["arguments"][1], event)

    def loss_threshold(self, event: Event) -> int:
        return max(self.cwnd // 2, 2)

    def undone(self, event: Event) -> int:
        return max(self.cwnd, event["prior_cwnd"])


class RenoMaxwin(Reno):
    """Jung and Park 2016, section 5.1: maxcwnd bounds the window."""

    def init(self, event: Event) -> None:
        self.cwnd = min(self.cwnd, self.options["bound"])

    def cong_avoid(self, event: Event) -> None:
        super().cong_avoid(event)
        self.cwnd = min(self.cwnd, self.options["bound"])

    def undone(self, event: Event) -> int:
        return min(super().undone(event), self.options["bound"])


@dataclass
class Vegas(Reno):
    """Brakmo and Peterson 1995: Diff = (expected - actual) * base RTT, once a round, from the round's smallest RTT."""

    base: float = math.inf
    rtts: list[int] = field(default_factory=list)
    until: int = 0
    judging: bool = False

    def new_round(self, event: Event) -> None:
        self.until = event["snd_nxt"]
        self.rtts = []

    def restart(self, event: Event) -> None:
        self.base = math.inf
        self.judging = True
        self.new_round(event)

    init = restart

    def pkts_acked(self, event: Event) -> None:
        rtt = signed(event["arguments"][0])
        if rtt >= 0:
            self.rtts.append(rtt + 1)
            self.base = min(self.base, rtt + 1)

    def set_state(self, event: Event) -> None:
        self.judging = event["arguments"][0] == OPEN
        if self.judging:
            self.new_round(event)

    def cwnd_event(self, event: Event) -> None:
        if event["arguments"][0] in (TX_START, CWND_RESTART):
            self.restart(event)

    def bounds(self, event: Event) -> tuple[int, int]:
        return self.options["alpha"], self.options["beta"]

    def cong_avoid(self, event: Event) -> None:
        ack, acked = event["arguments"]
        alpha, beta = self.bounds(event)
        if not self.judging:
            self.grow(acked, event)
            return
        if not follows(ack, self.until):
            if self.slow_start:
                self.double(acked, event)
            return
        if len(self.rtts) < 3:
            self.grow(acked, event)
        else:
            self.judge(alpha, beta, acked, event)
        self.new_round(event)

    def judge(self, alpha: int, beta: int, acked: int, event: Event) -> None:
        base, rtt = int(self.base), min(self.rtts)
        diff = self.cwnd * (rtt - base) // base
        if self.slow_start and diff > self.options["gamma"]:
            self.cwnd = min(self.cwnd, self.cwnd * base // rtt + 1)
            self.ssthresh = min(self.ssthresh, self.cwnd)
        elif self.slow_start:
            self.double(acked, event)
        elif diff > beta:
            self.cwnd -= 1
            self.ssthresh = min(self.ssthresh, self.cwnd)
        elif diff < alpha:
            self.cwnd += 1
        self.cwnd = max(2, min(self.cwnd, event["cwnd_clamp"]))
        self.ssthresh = max(self.ssthresh, self.cwnd // 2 + self.cwnd // 4)


@dataclass
class VegasFair(Vegas):
    """Jung and Park 2016, Fig. 5: alpha and beta are larger from a pause until INTRO_LENGTH bytes have been sent."""

    session: int | None = None

    def cwnd_event(self, event: Event) -> None:
        if event["arguments"][0] == TX_START:
            paused = (event["jiffies"] - event["lsndtime"]) % (1 << 32) / HZ
            if paused >= self.options["pause"] / 1000:
                self.session = event["bytes_sent"]
        super().cwnd_event(event)

    def bounds(self, event: Event) -> tuple[int, int]:
        if self.session is not None and event["bytes_sent"] - self.session >= self.options["introduction"]:
            self.session = None
        alpha, beta = super().bounds(event)
        if self.session is None:
            return alpha, beta
        return alpha + self.options["more_alpha"], beta + self.options["more_beta"]


@dataclass
class Westwood(Reno):
    """Grieco and Mascolo 2004: bandwidth from acknowledged bytes a round, two filters with weight 1/8."""

    SAMPLE_MIN = 50_000

    once: int = 0
    bandwidth: int = 0  # bytes/s
    since: int = 0
    acked: int = 0
    una: int = 0
    ahead: int = 0
    rtt: int = 20_000_000
    smallest: int = 20_000_000
    renew: bool = True
    fresh: bool = True

    def init(self, event: Event) -> None:
        self.__init__(self.options, self.cwnd, self.ssthresh, self.towards)  # type: ignore[misc]
        self.since, self.una = event["mstamp"], event["snd_una"]

    def pkts_acked(self, event: Event) -> None:
        if signed(event["arguments"][0]) > 0:
            self.rtt = event["arguments"][0]

    def in_ack_event(self, event: Event) -> None:
        if self.fresh:
            self.una, self.fresh = event["snd_una"], False
        interval = event["mstamp"] - self.since
        if interval > max(self.rtt, self.SAMPLE_MIN):
            sample = self.acked * 1_000_000 // interval
            first = not (self.once or self.bandwidth)
            self.once = sample if first else (7 * self.once + sample) // 8
            self.bandwidth = sample if first else (7 * self.bandwidth + self.once) // 8
            self.acked, self.since = 0, event["mstamp"]
        advanced, mss = (event["snd_una"] - self.una) % (1 << 32), event["mss"]
        if event["arguments"][0] & SLOW_PATH:
            if advanced == 0:  # a duplicate: one segment arrived, which a later ACK covers again
                self.ahead += mss
                advanced = mss
            elif advanced > mss:
                covered = min(self.ahead, advanced)
                advanced = mss if self.ahead >= advanced else advanced - covered
                self.ahead -= covered
        self.acked += advanced
        self.una = event["snd_una"]
        self.smallest = self.rtt if self.renew else min(self.rtt, self.smallest)
        self.renew = False

    def cwnd_event(self, event: Event) -> None:
        pipe = max(self.bandwidth * self.smallest // 1_000_000 // event["mss"], 2)
        if event["arguments"][0] == COMPLETE_CWR:
            self.cwnd = self.ssthresh = pipe
        elif event["arguments"][0] == LOSS:
            self.ssthresh = pipe
            self.renew = True


@dataclass
class TcpAv(Reno):
    """Ando, Murase and Oguchi, section II.B, with the loop and the rules for giving way of docs/hosts/cc.md."""

    ONE = 65536

    target: int = 0
    window: int = 0  # 0: there is no RTT yet
    gain: int = ONE
    share: int = 0
    timeouts: int = 0
    heard: int = 0
    gave_way_at: int | None = None
    short_since: int | None = None
    reached: bool = False  # the target's window, since the start or the last timeout
    until: int = 0
    started: int = 0
    lost: int = 0
    delivered: int = 0
    marked: int = 0

    @property
    def holds(self) -> bool:
        return self.target > 0 and self.window > 0 and self.gave_way_at is None

    def new_round(self, event: Event) -> None:
        self.until, self.started = event["snd_nxt"], event["mstamp"]
        self.lost, self.delivered, self.marked = event["lost"], event["delivered"], event["delivered_ce"]

    def renew(self, event: Event) -> None:
        # bytes = kbit/s * 1000 / 8 * s, whole; then whole packets that hold them.
        self.target = self.options["target"]
        size = self.target * (event["srtt_us"] // 8) // 8000 * self.gain // self.ONE
        self.window = max(-(-size // event["mss"]), 2) if event["srtt_us"] else 0

    def give_way(self, event: Event, window: int) -> None:
        if self.holds:
            self.gave_way_at = event["mstamp"]
            self.ssthresh = min(self.ssthresh, max(window // 2, 2))
            self.cwnd = min(self.cwnd, self.ssthresh)

    def init(self, event: Event) -> None:
        self.__init__(self.options, self.cwnd, self.ssthresh, self.towards)  # type: ignore[misc]
        self.heard = event["mstamp"]
        self.renew(event)
        self.new_round(event)
        if self.holds:
            self.ssthresh = self.window

    def close_loop(self, rate: int) -> None:
        """A quarter of the error of a round whose window is the target's goes into the gain, which is a half to two."""
        if rate < self.target and self.cwnd >= self.window:
            self.gain = min(self.gain + (self.target - rate) * self.ONE // self.target // 4, 2 * self.ONE)
        elif rate >= self.target and self.cwnd == self.window:
            over = min(rate - self.target, self.target)
            self.gain = max(self.gain - over * self.ONE // self.target // 4, self.ONE // 2)

    def pkts_acked(self, event: Event) -> None:
        self.heard = event["mstamp"]
        if follows(self.until, event["snd_una"]):
            return
        lost, delivered = event["lost"] - self.lost, event["delivered"] - self.delivered
        marked = event["delivered_ce"] != self.marked
        if lost + delivered:
            bad = min(lost + marked, lost + delivered)
            self.share = (7 * self.share + bad * self.ONE // (lost + delivered)) // 8
        started = self.started
        self.new_round(event)
        rate = delivered * event["mss"] * 8000 // max(event["mstamp"] - started, 1)
        judged = event["cwnd_limited"] and self.holds
        if judged:
            self.close_loop(rate)
        if not judged or rate + self.target // 20 >= self.target:
            self.short_since = None
        elif self.short_since is None and self.reached and (lost or marked):
            self.short_since = started
        self.renew(event)
        is_open, limit = event["ca_state"] == OPEN, self.options["loss_limit"] * self.ONE // 100
        if is_open:
            self.timeouts = 0
        if self.gave_way_at is not None:
            rested = event["mstamp"] - self.gave_way_at >= self.options["rest"] * 1000
            if is_open and rested and self.share <= limit // 2:
                self.gave_way_at, self.reached = None, False
            return
        since = event["mstamp"] if self.short_since is None else self.short_since
        starved = self.short_since is not None and event["mstamp"] - since >= self.options["patience"] * 1000
        if self.share > limit or starved:
            self.give_way(event, self.cwnd)

    def set_state(self, event: Event) -> None:
        if event["arguments"][0] == OPEN and event["ca_state"] in (CWR, RECOVERY):
            self.reached = True  # a reduction ends with the window at the threshold
        if event["arguments"][0] != TIMED_OUT:
            return
        self.new_round(event)
        self.short_since, self.reached = None, False
        # After a second without an acknowledgement the link is dead, which is no congestion.
        self.timeouts = self.timeouts + 1 if event["mstamp"] - self.heard < 1_000_000 else 0
        if self.timeouts > self.options["timeout_limit"]:
            self.give_way(event, event["prior_cwnd"])

    def cong_avoid(self, event: Event) -> None:
        if self.holds:
            self.ssthresh = self.window
        super().cong_avoid(event)
        if self.options["ceiling"] and self.target and self.window:
            self.cwnd = min(self.cwnd, self.window)
        self.reached |= self.cwnd >= self.window

    def loss_threshold(self, event: Event) -> int:
        half = super().loss_threshold(event)
        return max(half, self.window) if self.holds else half


MODELS: dict[str, type[Reno]] = {
    "vegas": Vegas,
    "vegas_fair": VegasFair,
    "westwood": Westwood,
    "reno_maxwin": RenoMaxwin,
    "tcp_av": TcpAv,
}


@dataclass
class Replay:
    """Counts of a replay: of each callback and state, and of the times that the control moved the window."""

    callbacks: dict[str, int] = field(default_factory=dict)
    moves: int = 0
    timeouts: int = 0
    recoveries: int = 0


def pairs(events: Iterable[Event]) -> Iterator[tuple[Event, Event]]:
    """The events before and after each callback, by socket."""
    open_calls: dict[int, Event] = {}
    for event in events:
        if not event["leaves"]:
            assert event["socket"] not in open_calls, "a callback within a callback"
            open_calls[event["socket"]] = event
        else:
            before = open_calls.pop(event["socket"])
            assert before["callback"] == event["callback"]
            yield before, event


def replay(name: str, options: dict[str, int], events: Iterable[Event]) -> Replay:
    """Replay the kernel's calls of a control to a model of `name`, for every socket.

    Raises AssertionError at the first event after which window, threshold, the count towards the next increase, or the
    answer differ.
    """
    models: dict[int, Reno] = {}
    seen = Replay()
    last: dict[int, Event] = {}
    for before, after in pairs(events):
        callback, socket = before["callback"], before["socket"]
        model = models.setdefault(socket, MODELS[name](options))
        previous = last.get(socket)
        if (
            previous
            and callback == "cong_avoid"
            and previous["callback"] == "pkts_acked"
            and before["ca_state"] == OPEN
        ):
            # Nothing stands between these two: the window is the model's own, not one taken over from the kernel.
            assert (model.cwnd, model.ssthresh) == (before["cwnd"], before["ssthresh"]), f"{before}\n{model}"
        # The kernel itself moves the window in recovery, after a timeout and after idle time: that is input.
        model.cwnd, model.ssthresh, model.towards = before["cwnd"], before["ssthresh"], before["cwnd_cnt"]
        answer = 0
        if callback == "ssthresh":
            answer = model.loss_threshold(before)
            seen.recoveries += 1
        elif callback == "undo_cwnd":
            answer = model.undone(before)
        else:
            getattr(model, callback)(before)
        expected = (model.cwnd, model.ssthresh, model.towards, answer)
        found = (after["cwnd"], after["ssthresh"], after["cwnd_cnt"], after["result"])
        assert expected == found, f"{callback}: model {expected}, control {found}\nbefore {before}\n{model}"
        seen.callbacks[callback] = seen.callbacks.get(callback, 0) + 1
        seen.moves += after["cwnd"] != before["cwnd"]
        seen.timeouts += callback == "cwnd_event" and before["arguments"][0] == LOSS
        last[socket] = before
    return seen
