# SPDX-License-Identifier: Apache-2.0
"""Audit of docs/results: whether each summary has its samples there, names commits of this history, and is of the code
as it is now. `audit.json` beside the summaries has what was found; pages say it in their heads.

A summary is audited when its figures can be computed again from samples in the checkout and all of its commits are
ancestors of HEAD, without files that differed. Summaries measured since `SINCE` have to be.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from accesspoint.experiments.runs import provenance, registry
from accesspoint.experiments.runs.store import write
from accesspoint.experiments.scenes.scene import Multihomed
from accesspoint.topologies.kernels.kernel import SIMULATED
from accesspoint.topologies.requirements import ROOT

FILE = "audit.json"
SINCE = "2026-11-28"
"""Day of the rule: what was measured before it and cannot be audited says so on its page."""
DIRTY = "-dirty"
TESTS = (":(exclude)*/tests/*", ":(exclude)*.md")
PARTS: Mapping[str, tuple[str, ...]] = {
    "p4src": ("p4src/compiled/ap.json", "p4src/compiled/ap.p4info.txtpb"),
    # BMv2's runtime interface is a port that no lab opens.
    "switch": ("switch", ":(exclude)switch/testdata", ":(exclude)switch/fuzz", ":(exclude)switch/thrift"),
    "controller": ("controller", ":(exclude)controller/web", ":(exclude)controller/monitoring"),
    "hosts": ("hosts",),
    "topologies/ns3": ("topologies/ns3",),
    "topologies/ns2": ("topologies/ns2",),
}
SCENE = "its scene"
PARTS_OF_SCENES = ("accesspoint.experiments.catalogue", "accesspoint.experiments.scenes")

State = Literal["there", "dirty", "gone"]
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Audit:
    """State of a summary. commits: their states by their names. changed: parts that differ from them now."""

    samples: bool
    commits: Mapping[str, State]
    changed: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.samples and bool(self.commits) and set(self.commits.values()) == {"there"}

    def of(self, state: State) -> list[str]:
        """Return the commits in a state."""
        return [name for name, own in self.commits.items() if own == state]

    @property
    def missing(self) -> str:
        """Reasons why it is not audited; empty where it is."""
        words = [] if self.samples else ["its samples are not in this repository"]
        if gone := self.of("gone"):
            words.append(f"{_commits(gone)} not in the history of this repository")
        if dirty := self.of("dirty"):
            words.append(f"files differed from {', '.join(dirty)} when it was measured")
        return "; ".join(words) or ("" if self.commits else "it names no commit")

    def head(self) -> list[str]:
        """Return the lines of a page's head; empty for a page that is audited and of the current code."""
        lines = [f"**Not audited**: {self.missing}."] if self.missing else []
        if self.changed:
            known = ", ".join([*self.of("there"), *self.of("dirty")])
            lines.append(f"**Older code**: {_listed(self.changed)} changed since {known}.")
        return [text for line in lines for text in (line, "")]


def _commits(names: list[str]) -> str:
    return f"commit {names[0]} is" if len(names) == 1 else f"commits {', '.join(names)} are"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def look(summary: Summary, results: Path) -> Audit:
    """Audit a summary by the files of a folder of results, and by this checkout's history."""
    raw = summary.get("raw", {})
    file = results / (raw.get("file") or "none")
    samples = file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == raw.get("sha256")
    names = [name for name in summary["versions"].get("commit", "").split(", ") if name]
    return of_commits(names, _sources(summary), samples)


def of_commits(names: Iterable[str], sources: Mapping[str, tuple[str, ...]], samples: bool) -> Audit:
    """Audit figures that were measured at these commits, by this checkout's history. sources: parts of the code that
    took part -> their paths."""
    commits = {name: state(name) for name in names}
    known = [name.removesuffix(DIRTY) for name, own in commits.items() if own != "gone"]
    changed = [part for part, paths in sources.items() if any(_differs(name, paths) for name in known)]
    return Audit(samples, commits, tuple(changed))


def state(name: str) -> State:
    """Return the state of a commit, of which `-dirty` follows the name where files differed from it."""
    commit = name.removesuffix(DIRTY)
    if not provenance.git("merge-base", "--is-ancestor", commit, "HEAD"):
        return "gone"
    return "dirty" if commit != name else "there"


def _differs(commit: str, paths: tuple[str, ...]) -> bool:
    return not provenance.git("diff", "--quiet", commit, "--", *paths, *TESTS)


def _sources(summary: Summary) -> dict[str, tuple[str, ...]]:
    """Parts that take part in an experiment's runs -> their paths."""
    experiment = registry.find(summary["experiment"])
    scene = experiment.scene_of(next(experiment.points()), experiment.arms[0])
    parts = ["p4src", "switch", "controller"]
    if isinstance(scene, Multihomed):
        parts = ["hosts"]
    elif SIMULATED in summary.get("clocks", ()):
        ours = any(experiment.arm(name).role == "ours" for name in summary["arms"])
        simulator = getattr(scene, "simulator", "ns-3").replace("-", "")
        parts = [*(parts if ours else []), f"topologies/{simulator}"]
    files = [file for file in _files(registry.file(experiment.name)) if file.is_relative_to(ROOT)]
    scene_files = tuple(sorted(str(file.relative_to(ROOT)) for file in files))
    # A file of the user's own has no history here.
    return {part: PARTS[part] for part in parts} | ({SCENE: scene_files} if scene_files else {})


def _files(file: Path, known: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """Return a file and those of catalogue and scenes that it imports."""
    known |= {file}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PARTS_OF_SCENES):
            place = ROOT.joinpath(*node.module.split(".")[1:])
            beside = [place / f"{alias.name}.py" for alias in node.names]
            for other in (place.with_suffix(".py"), place / "__init__.py", *beside):
                if other.is_file() and other not in known:
                    known = _files(other, known)
    return known


def look_at_all(results: Path) -> dict[str, Audit]:
    """Audit every summary of a folder of results. Without the whole history what was kept of commits stays, and a
    summary of which nothing was kept is left out."""
    found = {name: look(summary, results) for name, summary in summaries(results).items()}
    if whole_history():
        return found
    before = kept(results)
    return {name: replace(before[name], samples=each.samples) for name, each in found.items() if name in before}


def summaries(results: Path) -> dict[str, dict[str, Any]]:
    """Summaries of a folder of results by experiment."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((results / "summaries").glob("*.json"))}


def kept(results: Path) -> dict[str, Audit]:
    """Audits of a folder of results, as they were kept."""
    try:
        found = json.loads((results / FILE).read_text())
    except FileNotFoundError:
        return {}
    return {name: Audit(one["samples"], one["commits"], tuple(one["changed"])) for name, one in found.items()}


def keep(results: Path) -> None:
    """Audit every summary of a folder of results, and keep what is found."""
    found = {name: asdict(audit) for name, audit in look_at_all(results).items()}
    write(results / FILE, json.dumps(found, indent=1) + "\n")


def new_and_incomplete(results: Path, audits: Mapping[str, Audit]) -> list[str]:
    """Return the summaries that have to be audited, and are not, with the reason."""
    since = {name for name, summary in summaries(results).items() if summary.get("started", "") >= SINCE}
    return [f"{name}: {audits[name].missing}" for name in sorted(since) if not audits[name].complete]


def whole_history() -> bool:
    """Return whether this checkout has its whole history: an archive has none, a shallow clone lacks old commits."""
    return provenance.commit() != provenance.NO_COMMIT and not provenance.shallow()
