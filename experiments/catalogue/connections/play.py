# SPDX-License-Identifier: Apache-2.0
"""Plays scenarios in a lab, one after the other, and streams both ways: one program in each host does what it is told
over a pipe (accesspoint.experiments.catalogue.connections.host)."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.catalogue.connections.host import INTERVAL, LIMIT
from accesspoint.experiments.catalogue.connections.scenario import MODES, SEED, Mode, Scenario, of_link
from accesspoint.experiments.catalogue.connections.verdict import ARMS, TIMES, Figures, exceeding
from accesspoint.experiments.measure.run_data import Point
from accesspoint.topologies.requirements import ROOT, LabError

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

PORT, SINK, STREAM = 6000, 5900, 5800  # the first of each kind
SOURCE = 20_000  # of ports that are used again
PATIENCE = 25.0  # s for an answer: a host's own waits end before
SETTLE = 2.0  # s from the beginning of the other station's upload
PAUSE = 0.1  # s after a scenario, in which its last packets arrive
FILE = "scenarios.json"  # what a later repeat of the run reads
BUFFERS = {"64k": 64 << 10, "default": None}
GAP = 2.0  # s between two streams


class Agent:
    """The program in a host."""

    def __init__(self, host: Any) -> None:
        self.name = host.name
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] = host.popen(
            sys.executable, "-m", "accesspoint.experiments.catalogue.connections.host",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1, cwd=ROOT,
        )  # fmt: skip
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)

    def ask(self, do: str, patience: float = PATIENCE, **more: Any) -> dict[str, Any]:
        """Has a command done and returns the answer. Raises LabError."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        try:
            answer: dict[str, Any] = json.loads(self._answers.get(timeout=patience))
        except (queue.Empty, ValueError):
            raise LabError(f"the program in {self.name} does not answer to `{do}`") from None
        if "error" in answer:
            raise LabError(f"the program in {self.name} failed at `{do}`: {answer['error']}")
        return answer


def in_thread(stage: "Stage", play: Callable[[], None]) -> Callable[[], None]:
    """Returns what starts it next to the stage's clock; the run ends with it."""

    def run() -> None:
        try:
            play()
        except Exception as error:  # whatever it is: without it there is nothing to measure
            stage.problems.append(f"connections: {error}")
        stage.finish()

    return threading.Thread(target=run, daemon=True).start


@dataclass(frozen=True)
class Scenarios:
    """So many scenarios of a link after its first ones, alone and then while another station uploads.

    Samples of source `017 alone`: `connect_ms`, `first_ms`, `last_ms` (without the last one it stalled), `up_bytes`,
    `other_bytes` (the other upload's in its time), `retransmitted`, `challenge_acks`; `lacking` 1 where the kernel
    has not what it asks for. The first repeat plays all, the others those that the first one found too slow.
    """

    link: int
    count: int
    skipped: int = 0

    def needless(self, directory: Path, point: Point, repeat: int) -> bool:
        """Return whether the first repeat found nothing too slow."""
        return to_repeat(directory, point, repeat) == set()

    def prepare(self, stage: "Stage") -> None:
        players = _Players(stage, of_link(SEED, self.link, self.count, self.skipped))
        stage.at(0.0, in_thread(stage, players.play))


class _Players:
    """The hosts of one run."""

    def __init__(self, stage: "Stage", scenarios: Sequence[Scenario]) -> None:
        self._stage, self._scenarios = stage, scenarios
        self._client, self._other = (Agent(stage.station(number)) for number in (1, 2))
        self._server = Agent(stage.server)
        addresses = {4: stage.address, 6: "fd00::1"}
        self._address = {family: str(address) for family, address in addresses.items()}
        self._ports = iter(range(PORT, PORT + 4096))
        self._figures: dict[str, Figures] = {}
        for agent in (self._client, self._other, self._server):
            agent.ask("counts")

    def play(self) -> None:
        wanted = to_repeat(self._stage.directory, self._stage.point, self._stage.repeat)
        left = 0
        for mode in MODES:
            chosen = [one for one in self._scenarios if wanted is None or name(one.number, mode) in wanted]
            if chosen:
                left += self._phase(mode, chosen)  # type: ignore[arg-type]
        if left:
            self._stage.problems.append(f"{left} scenarios were not played: the time was over")
        (self._stage.directory / FILE).write_text(json.dumps(self._figures, indent=1) + "\n")

    def _phase(self, mode: Mode, chosen: Sequence[Scenario]) -> int:
        """Returns the number of scenarios that there was no time for."""
        if mode == "loaded":
            self._server.ask("sink", port=SINK)
            self._other.ask("upload", address=self._address[4], port=SINK)
            threading.Event().wait(SETTLE)
        resting: dict[int, tuple[dict[str, Any], float]] = {}
        for one in (one for one in chosen if one.waits):
            words = self._listen(one, mode)
            resting[one.number] = words, self._prior(one, words)
        left = 0
        for one in sorted(chosen, key=lambda one: one.waits):
            words, since = resting.get(one.number, ({}, 0.0))
            rest = max(0.0, since + (one.age or 0.0) - time.monotonic()) if since else one.age or 0.0
            if self._stage.now() + rest + LIMIT > self._stage.seconds:
                left += 1
                continue
            words = words or self._listen(one, mode)
            if one.age is not None:
                since = since or self._prior(one, words)
            self._one(one, mode, words, since)
        if mode == "loaded":
            self._other.ask("stop")
        return left

    def _listen(self, one: Scenario, mode: Mode) -> dict[str, Any]:
        """Has the server serve a scenario; returns the client's command for it."""
        port = next(self._ports)
        source = 0 if one.age is None else SOURCE + 2 * one.number + MODES.index(mode)
        self._server.ask("listen", port=port, scenario=one.as_dict())
        return {"address": self._address[one.family], "port": port, "source": source, "scenario": one.as_dict()}

    def _prior(self, one: Scenario, words: dict[str, Any]) -> float:
        """Plays the earlier connection of a port; returns when it was reset (s of the monotonic clock)."""
        answer = self._client.ask("prior", **words)
        if "ended" not in answer:
            self._stage.problems.append(f"scenario {one.number}: its port's first connection: {answer['outcome']}")
        return float(answer.get("ended", 0.0))

    def _one(self, one: Scenario, mode: Mode, words: dict[str, Any], since: float) -> None:
        not_before = since + (one.age or 0.0)
        patience = PATIENCE + (one.age or 0.0)
        before = self._counts()
        done = self._client.ask("connect", patience, not_before=not_before, **words)
        after = self._counts()
        served = self._server.ask("served", port=words["port"])
        took = done.get("last", LIMIT)
        other = (after["sunk"] - before["sunk"]) * took / max(took, after["time"] - max(before["time"], not_before))
        values = {f"{key}_ms": done[key] * 1e3 for key in ("connect", "first", "last") if key in done}
        values |= {"up_bytes": one.up, "other_bytes": other if mode == "loaded" else 0.0}
        values |= {"retransmitted": done["retransmitted"] + served["retransmitted"]}
        values |= {"challenge_acks": after["challenge_acks"] - before["challenge_acks"]}
        values |= {"lacking": 1.0} if done["lacking"] else {}
        key = name(one.number, mode)
        now = min(self._stage.now(), self._stage.seconds)
        for quantity, value in values.items():
            self._stage.sample(now, quantity, float(value), source=key)
        self._figures[key] = {what: values.get(f"{what}_ms", LIMIT * 1e3) for what in TIMES}
        if "last" not in done:
            self._stage.found.setdefault("stalled", {})[key] = f"{done['outcome']}; the server: {served['outcome']}"
        threading.Event().wait(PAUSE)

    def _counts(self) -> dict[str, float]:
        both = [self._client.ask("counts"), self._server.ask("counts")]
        return both[1] | {"challenge_acks": sum(each["challenge_acks"] for each in both)}


def name(number: int, mode: str) -> str:
    """`017 alone`: the source of a scenario's samples."""
    return f"{number:03d} {mode}"


def to_repeat(directory: Path, point: Point, repeat: int) -> set[str] | None:
    """Return the scenarios that the first repeat of a run found too slow, by what both arms left next to this run's
    folder; None: all are to be played, as there is no such repeat."""
    if repeat == 1:
        return None
    words = "_".join(f"{key}={value}" for key, value in point.items())
    kept = [_kept(directory.parent, f"{arm}_{words}_1") for arm in ARMS]
    if kept[0] is None or kept[1] is None:
        return None
    return exceeding(kept[0], kept[1])


def _kept(runs: Path, run: str) -> dict[str, Figures] | None:
    """Findings of a fit run; an unfit one was repeated."""
    for folder in (runs / run, runs / f"{run}+again"):
        try:
            if not json.loads((folder / "run.json").read_text())["self_check"]["problems"]:
                return dict(json.loads((folder / FILE).read_text()))
        except (OSError, ValueError):
            continue
    return None


@dataclass(frozen=True)
class Streams:
    """One connection that carries data both ways, as much as goes, for `length` s: with receive buffers of 64 KiB, and
    then with the kernel's own. Samples: `rate_mbps` of `down-64k`, `up-64k`, `down-default`, `up-default`;
    `retransmitted` and `challenge_acks` of `64k` and `default`."""

    length: float

    def prepare(self, stage: "Stage") -> None:
        client, server = Agent(stage.station(1)), Agent(stage.server)
        client.ask("counts")
        server.ask("counts")
        stage.at(0.0, in_thread(stage, lambda: self._play(stage, client, server)))

    def _play(self, stage: "Stage", client: Agent, server: Agent) -> None:
        length = self.length * stage.scale
        for place, (kind, size) in enumerate(BUFFERS.items()):
            threading.Event().wait(max(0.0, self.begin(kind) * stage.scale - stage.now()))
            before = [agent.ask("counts")["challenge_acks"] for agent in (client, server)]
            words: dict[str, Any] = {"port": STREAM + place, "seconds": length, "buffer": size}
            server.ask("stream", **words)
            down = client.ask("stream", length + PATIENCE, address=stage.address, **words)
            up = server.ask("served", port=words["port"])
            after = [agent.ask("counts")["challenge_acks"] for agent in (client, server)]
            for way, found in (("down", down), ("up", up)):
                for when, rate in found["rates"]:
                    middle = when - stage.started - INTERVAL / 2
                    stage.sample(middle, "rate_mbps", rate, INTERVAL, f"{way}-{kind}")
            at = min(stage.now(), stage.seconds)
            stage.sample(at, "retransmitted", down["retransmitted"] + up["retransmitted"], source=kind)
            stage.sample(at, "challenge_acks", sum(after) - sum(before), source=kind)

    def begin(self, kind: str) -> float:
        """Returns when a stream begins (s of the timeline)."""
        return list(BUFFERS).index(kind) * (self.length + GAP)

    @property
    def seconds(self) -> float:
        """Length of both, with some room."""
        return 2 * (self.length + GAP)
