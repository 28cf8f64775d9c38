# SPDX-License-Identifier: Apache-2.0
"""Check that the congestion window limits a bulk transfer, and not the sender's machine or its radio.

The kernel lets a window grow only while the window is what limits the sender (`is_cwnd_limited`, RFC 7661). Where a
radio gives frames back late, TCP's limit on data queued below it (TSQ) limits instead, or the CPU does: the window
stays small for a reason that is not the link's, and what is measured is the lab. `ss` says which it is.

A run is unfit for that alone. What a flow suffers from others is what is studied: one that waits for its first packet,
or that tries again what was lost, tells nothing of the machine; nor does one that paces itself below its window.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

MIN_LIMITED = 0.5  # of the looks: a bulk transfer's window is full nearly always
SLACK = 2  # segments: one look may fall between an ACK and what it lets go
_FIELD = re.compile(r"(\w+):(\d+)")
_SHARE = re.compile(r"(rwnd_limited|sndbuf_limited):\d+ms\(([\d.]+)%\)")
_PACED = re.compile(r"\bbbr")
"""BBR sends at a rate; its window is well above what that takes."""
_RETRANSMITTED = re.compile(r"retrans:(\d+)/")


@dataclass(frozen=True)
class Look:
    """A connection at one moment. receive_limited, buffer_limited: shares of its busy time, so far."""

    sent: int  # bytes since its start
    cwnd: int  # segments
    in_flight: int  # segments
    unsent: int  # bytes that wait for leave to go
    receive_limited: float
    buffer_limited: float
    telling: bool = True
    """False where the window need not be full: the flow repairs losses, or is paced."""

    @property
    def cwnd_limited(self) -> bool:
        """As much is in flight as the window allows."""
        return self.in_flight + SLACK >= self.cwnd


def parse(text: str) -> list[Look]:
    """The connections in the output of `ss -tinH`, two lines each."""
    looks = []
    for line in text.splitlines():
        fields = {name: int(value) for name, value in _FIELD.findall(line)}
        if not line.startswith(("\t", " ")) or "cwnd" not in fields:
            continue
        shares = {name: float(percent) / 100 for name, percent in _SHARE.findall(line)}
        again = _RETRANSMITTED.search(line)
        in_flight = fields.get("unacked", 0) - fields.get("sacked", 0) - fields.get("lost", 0)
        out, lost = fields.get("unacked", 0), fields.get("lost", 0)
        suffers = "backoff" in fields or (lost > 0 and 2 * lost >= out)
        looks.append(
            Look(
                fields.get("bytes_sent", 0), fields["cwnd"], in_flight + (int(again[1]) if again else 0),
                fields.get("notsent", 0), shares.get("rwnd_limited", 0.0), shares.get("sndbuf_limited", 0.0),
                not suffers and not _PACED.search(line),
            )
        )  # fmt: skip
    return looks


def bulk(looks: Sequence[Look]) -> list[Look]:
    """Leave out connections that only control: those with less than a tenth of the busiest one's bytes."""
    most = max((look.sent for look in looks), default=0)
    return [look for look in looks if look.sent and look.sent >= most / 10]


def judge(texts: Sequence[str]) -> dict[str, float] | None:
    """Return what limited a flow: `cwnd_limited` as a share of the looks at it, `receive_limited` and `buffer_limited`
    as shares of its busy time. None without a look that is `telling`."""
    moments = [bulk(parse(text)) for text in texts]
    looks = [look for moment in moments for look in moment if look.telling]
    if not looks:
        return None
    last = next(moment for moment in reversed(moments) if moment)
    return {
        "cwnd_limited": round(sum(look.cwnd_limited for look in looks) / len(looks), 3),
        "receive_limited": max(look.receive_limited for look in last),
        "buffer_limited": max(look.buffer_limited for look in last),
    }


def problem(flow: str, judged: dict[str, float] | None, held_back: bool = True) -> str | None:
    """Return why a flow makes a run unfit; None when it does not. held_back: a radio or the machine may be the
    cause."""
    if judged is None or judged["cwnd_limited"] >= MIN_LIMITED:
        return None
    if max(judged["receive_limited"], judged["buffer_limited"]) > MIN_LIMITED:
        what = "receive window" if judged["receive_limited"] >= judged["buffer_limited"] else "send buffer"
        return f"{flow} was limited by its {what}, not by its congestion window"
    if not held_back:
        return None
    return (
        f"{flow} was cwnd-limited in only {judged['cwnd_limited']:.0%} of samples: "
        f"the radio or the machine limited it, not the link"
    )
