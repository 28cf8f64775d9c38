# SPDX-License-Identifier: Apache-2.0
"""Scripts of connections, as Hypothesis draws them.

A case has one to three slots: 5-tuples that share hosts. Several connections use a slot, one after the other. A step
that names a slot without a connection opens one first, and lets the handshake end; `Open` reuses the port. The initial
numbers of a reuse are drawn by their distance from where the old connection's numbers ended.
"""

from dataclasses import dataclass, fields

from hypothesis import strategies as st

from accesspoint.ptf_tests.model.endpoint import ACCURATE, CLASSIC, DCTCP, NO_ECN, Host, Options
from accesspoint.ptf_tests.model.segments import SERIAL

CLIENT, SERVER = 0, 1
WINDOW = 1 << 30  # as the filter's, and TCP's largest
MILLISECOND = 1_000_000  # ns
MAX_STEPS, PARTS = 32, 4
MIN_LIMIT = 64  # packets: BMv2's default for each queue, and the smallest of all targets'
SETTLE = -1  # wait until nothing is in flight
FINE, LOST, SWAPPED, LATE = 0, -1, 1, 30  # fate of a frame before the access point; else: how late, in 10 us
BASES = (0, 1000, SERIAL - 1, SERIAL - 3000, SERIAL - 20000, WINDOW - 2000, 2 * WINDOW - 2000, 3 * WINDOW)
NEAR = (0, 1, -1, -2, 500, -500, -1000, -2000, -3000, -5000, -10000, -20000, 1000, 5000)
FAR = tuple(
    sign * distance + beside
    for distance in (WINDOW, 2 * WINDOW, 3 * WINDOW)
    for sign in (1, -1)
    for beside in (0, -1, 1, -1000, 1000)
)


@dataclass(frozen=True)
class Step:
    """A step of a script; slot: of which 5-tuple. wait: after it, in us, or SETTLE: until nothing is in flight."""

    slot: int
    wait: int = SETTLE

    def __str__(self) -> str:
        own = [one.name for one in fields(self) if one.name not in ("slot", "wait", "end")]
        words = [f"{name}={getattr(self, name)}" for name in own]
        end = [("client", "server")[self.end]] if isinstance(self, OfEnd) else []
        wait = "settle" if self.wait == SETTLE else f"wait {self.wait} us"
        return f"{' '.join([type(self).__name__.lower(), str(self.slot), *end, *words])}; {wait}"


@dataclass(frozen=True)
class Open(Step):
    """A new connection of the slot. distances: of the client's and the server's initial number from the old ones'.

    learned: whether its flows are new, as the old ones' have aged.
    """

    distances: tuple[int, int] = (0, 0)
    learned: bool = False


@dataclass(frozen=True)
class OfEnd(Step):
    """A step of one end."""

    end: int = CLIENT


@dataclass(frozen=True)
class Write(OfEnd):
    """Data in so many segments; size 0: full ones."""

    count: int = 1
    size: int = 0


@dataclass(frozen=True)
class Bulk(OfEnd):
    """Full frames of somebody else, to where this end's segments wait."""

    count: int = 1


@dataclass(frozen=True)
class Outage(OfEnd):
    """The wire that this end's segments take sends nothing for so many ms; 0: it does again."""

    length: int = 0


@dataclass(frozen=True)
class Exchange(Step):
    """Full segments both ways at once. counts: of client and server."""

    counts: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Flood(OfEnd):
    """The wire of this end's segments sends nothing for 30 ms, in which the peer sends it so many segments."""

    count: int = 80
    size: int = 0


@dataclass(frozen=True)
class Fates(OfEnd):
    """Fates of this end's next frames on their way to the access point."""

    fates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Marks(OfEnd):
    """A number of this end's next data segments that come with CE."""

    count: int = 1


@dataclass(frozen=True)
class Do(OfEnd):
    """One of the calls of an endpoint."""

    call: str = "keep_alive"


@dataclass(frozen=True)
class Skip(OfEnd):
    """A number of bytes that this end has sent without the access point seeing them."""

    distance: int = 0


@dataclass(frozen=True)
class Learn(Step):
    """The slot's flows have aged, and are learned again: with other indices or generations."""


@dataclass(frozen=True)
class Forget(Step):
    """The slot's flows have aged."""


@dataclass(frozen=True)
class Slot:
    """A 5-tuple and how its ends are made. client, server: their ports, and so their hosts."""

    client: int
    server: int
    port: int
    options: Options
    hosts: tuple[Host, Host]
    bases: tuple[int, int]
    server_opens: bool = False


@dataclass(frozen=True)
class Case:
    """Slots, the packets that a port's queues hold, the flow indices there are, and the script.

    strict: whether order is owed also to connections without an entry in the flow table (model/judge.py).
    """

    slots: tuple[Slot, ...]
    limit: int
    indices: int
    generation: int
    strict: bool
    steps: tuple[Step, ...]

    @property
    def connections(self) -> int:
        """Connections that the script opens, at least."""
        return len({step.slot for step in self.steps}) + sum(isinstance(step, Open) for step in self.steps)

    def __str__(self) -> str:
        lines = [f"limit {self.limit} packets, {self.indices} flow indices, generation {self.generation}"]
        for number, slot in enumerate(self.slots):
            names = ("no ECN", "ECN", "DCTCP", "AccECN")
            words = [
                f"IPv{slot.options.version}",
                *(["timestamps"] if slot.options.timestamps else []),
                *(["SACK"] if slot.options.sack else []),
                names[slot.options.ecn],
                *(["opened by the server"] if slot.server_opens else []),
            ]
            lines.append(f"slot {number}: host {slot.client} to host {slot.server}, {', '.join(words)}")
            for name, host, base in zip(("client", "server"), slot.hosts, slot.bases, strict=True):
                lines.append(
                    f"  {name}: initial number {base % SERIAL:#x}, buffer {host.buffer} segments, window scale "
                    f"{host.scale}, an ACK for {host.every}"
                )
        return "\n".join([*lines, *(f"{number}. {step}" for number, step in enumerate(self.steps, 1))])


def _step_strategies(slots: int) -> st.SearchStrategy[Step]:
    # In the order of the fields: slot, wait, end, ...
    slot = st.integers(0, slots - 1)
    end = st.sampled_from((SERVER, CLIENT))
    wait = st.sampled_from((SETTLE, SETTLE, SETTLE, 0, 0, 200, 1000, 3000, 20000))
    fates = st.lists(st.sampled_from((FINE, FINE, LOST, SWAPPED, LATE)), min_size=1, max_size=8).map(tuple)
    distance = st.one_of(st.sampled_from(NEAR), st.integers(-6000, 0), st.sampled_from(FAR))
    # Enough for the ACKs to fill a queue, now and then.
    counts = st.one_of(st.integers(1, 16), st.integers(1, 16), st.sampled_from((40, 80, 150)))
    sizes = st.sampled_from((0, 0, 0, 1, 100))
    write = st.builds(Write, slot, wait, st.sampled_from((SERVER, SERVER, CLIENT)), counts, sizes)
    calls = st.sampled_from(
        ("keep_alive", "time_out", "time_out", "close", "reset", "stall", "stall", "read", "read", "flush")
    )
    reopen = st.builds(Open, slot, wait, st.tuples(distance, distance), st.sampled_from((False, False, True)))
    skips = (WINDOW - 1, WINDOW, WINDOW + 1, WINDOW - 3000, WINDOW + 3000, 2 * WINDOW, 3 * WINDOW - 50000)
    do = st.builds(Do, slot, wait, end, calls)
    outage = st.builds(
        Outage, slot, st.just(0), st.sampled_from((CLIENT, CLIENT, SERVER)), st.sampled_from((30, 30, 5, 2, 0))
    )
    return st.one_of(
        write,
        write,
        write,
        write,
        reopen,
        reopen,
        st.builds(Bulk, slot, wait, end, st.integers(1, 12)),
        outage,
        st.one_of(
            # More than a window, while the own data waits; and more ACKs than a queue holds.
            st.builds(Exchange, slot, wait, st.tuples(st.sampled_from((40, 80)), st.sampled_from((150, 80)))),
            st.builds(Flood, slot, wait, st.just(CLIENT), st.sampled_from((80, 150)), st.sampled_from((0, 1, 100))),
        ),
        st.builds(Fates, slot, st.just(0), end, fates),
        st.builds(Marks, slot, st.just(0), st.just(SERVER), st.integers(1, 6)),
        do,
        do,
        st.one_of(
            st.builds(Learn, slot, wait),
            st.builds(Forget, slot, wait),
            st.builds(Skip, slot, wait, end, st.sampled_from(skips)),
        ),
    )


STEPS = {slots: _step_strategies(slots) for slots in (1, 2, 3)}
OPTIONS = st.builds(
    Options,
    version=st.sampled_from((4, 4, 6)),
    timestamps=st.booleans(),
    sack=st.booleans(),
    ecn=st.sampled_from((NO_ECN, NO_ECN, CLASSIC, DCTCP, ACCURATE)),
)
HOSTS = st.builds(
    Host,
    buffer=st.sampled_from((100, 1000, 64, 16, 4)),
    scale=st.sampled_from((7, 0, 4, 14)),
    every=st.sampled_from((2, 1, 4)),
    clock=st.sampled_from((0, SERIAL - 20, SERIAL // 2 - 10)),
)
SLOTS = st.tuples(
    st.sampled_from((1, 2)),
    st.sampled_from((3, 4)),
    OPTIONS,
    st.tuples(HOSTS, HOSTS),
    st.tuples(st.sampled_from(BASES), st.sampled_from(BASES)),
    st.sampled_from((False, False, True)),
)


@st.composite
def cases(
    draw: st.DrawFn,
    servers: tuple[int, ...] = (3, 4),
    limits: tuple[int, ...] = (1000, MIN_LIMIT),
    strict: bool = False,
) -> Case:
    """A script and its slots. servers: ports behind which servers may be. limits, strict: of a case."""
    count = draw(st.sampled_from((1, 1, 2, 3)))
    slots = []
    for number in range(count):
        client, server, options, hosts, bases, server_opens = draw(SLOTS)
        server = server if server in servers else servers[-1]
        slots.append(Slot(client, server, 40000 + number, options, hosts, bases, server_opens))
    return Case(
        tuple(slots),
        limit=draw(st.sampled_from(limits)),
        indices=2 * count + draw(st.integers(0, 2)),
        generation=draw(st.sampled_from((0, 253))),
        strict=strict,
        # One list has few steps, and one of a drawn size does not shrink.
        steps=tuple(step for _ in range(PARTS) for step in draw(st.lists(STEPS[count], max_size=MAX_STEPS // PARTS))),
    )
