# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments.verdict.judge`: write docs/results/claims.md, a word for every claim of the
papers, from the results in docs/results/summaries, and their pages where these say something else. `--check` compares
all of these instead: exit code 1 when one differs."""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accesspoint.experiments.experiment import Value
from accesspoint.experiments.runs.store import write
from accesspoint.experiments.verdict import claim_evidence, claims, gains
from accesspoint.experiments.verdict.claims import Claim, Judgement, Repeats
from accesspoint.experiments.verdict.gains import shown
from accesspoint.topologies.requirements import ROOT

RESULTS = ROOT / "docs" / "results"
SUMMARIES = RESULTS / "summaries"
PAGE = RESULTS / "claims.md"
PAPERS = {
    "000": "NCR: downloads protected from uploads",
    "001": "Instantaneous fairness of TCP",
    "002": "Congestion windows by the ratio of round trips",
    "003": "BATCP: one connection over several interfaces",
    "004": "QoS-guaranteed TCP on real terminals",
}
MAX_SHOWN = 4
HEAD = (
    "Every statement of the five papers' evaluations that can be checked is a claim in",
    "`experiments/verdict/claims.toml`: its quote, setting, measure, and the rule that decides. The file was written",
    "from the texts alone, before the results, and a result carries its checksum: results of other claims decide",
    "nothing here.",
    "`contradicted` is as good a result as `reproduced`; `undecided` says that the interval decides nothing,",
    "`not measured` that the lab lacks something, or that it was not run. Values are means over repeats with",
    "Student's 95 % interval.",
)
FOOT = (
    "`.venv/bin/python -m accesspoint.experiments.verdict.judge` makes this page from `docs/results/summaries`, and a "
    "test makes it again.",
    "The rules, R1 to R8, are at the head of `claims.toml`; the figure for each claim is a line of "
    "`experiments/verdict/answers.toml`.",
)

ELSEWHERE = (
    "NCR stands at the station's uplink interface in the paper. These figures of it are of an arm that regulates the "
    "downlink's port, too, as the arm in the paper's place was not run yet:"
)
BESIDE = (
    "This access point, or its scheduler, compared with the paper's proposal, and with a peer: CAKE with its ACK",
    "filter, or kernel MPTCP. Each ratio is taken repeat by repeat, which had one seed:",
)


class Results:
    """Figures of summaries by the current claims: a summary of other claims, or of none, has no figures here."""

    def __init__(self, summaries: Sequence[Mapping[str, Any]]) -> None:
        self.experiments = {str(one["experiment"]) for one in summaries}
        self.older = {str(one["experiment"]) for one in summaries if one.get("claims") != claims.sha256()}
        self._found: dict[tuple[str, str, str, tuple[tuple[str, Value], ...]], Repeats] = {}
        for summary in summaries:
            if summary["experiment"] in self.older:
                continue
            for cell in summary["cells"]:
                values = {int(repeat): float(value) for repeat, value in cell["values"].items()}
                point = tuple(sorted(cell["point"].items()))
                key = summary["experiment"], cell["measure"], cell["arm"], point
                self._found[key] = Repeats(values, summary["form"])

    def __call__(self, experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None:
        return self._found.get((experiment, measure, arm, tuple(sorted(point.items()))))

    def only(self, arm: str, other: str) -> list[str]:
        """Return the experiments that have one arm, and not the other."""
        arms: dict[str, set[str]] = {}
        for experiment, _, own, _ in self._found:
            arms.setdefault(experiment, set()).add(own)
        return sorted(name for name, own in arms.items() if arm in own and other not in own)


def kept(directory: Path = SUMMARIES) -> Results:
    """Read the committed summaries."""
    return Results([json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))])


def judged(claim: Claim, results: Results) -> Judgement:
    """Judge one claim: its word, and why it has none."""
    if lacks := claim_evidence.lacking(claim):
        return Judgement("not measured", why=f"the lab lacks {'; '.join(lacks)}")
    claim = claim_evidence.placed(claim)
    answers = claim_evidence.answers(claim, results)
    if not answers:
        return Judgement("not measured", why=f"missing: {claim_evidence.MISSING[claim.id]}")
    return claims.together({name: claims.judge(claim, answer) for name, answer in answers.items()})


def verdicts(paper: str, summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Verdicts of one experiment of a paper on its claims: a word for each that it answers, and where it answers none,
    why the paper's have none. Empty for an experiment without a paper."""
    own = [claim for claim in claims.load() if claim.paper == paper]
    least = claims.MIN_REPEATS[summary["form"]]
    made = summary.get("repeats", least)
    if own and made < least:
        text = f"{len(own)} claims of the paper take {least} repeats, and this is {made}"
        return [{"kind": "claim", "word": "not measured", "text": text}]
    results = Results([summary])
    found = []
    for claim in own:
        if summary["experiment"] in claim_evidence.asked(claim):
            judgement = judged(claim, results)
            here = "; ".join(text for text in (_ours(judgement), judgement.why) if text)
            text = f"`{claim.id}`, {claim.figure}: {claim.printed}: {claim.measure}. Here: {here}"
            found.append({"kind": "claim", "word": judgement.word, "text": text})
    if found:
        return found
    reasons = Counter(judged(claim, results).why for claim in own)
    return [
        {"kind": "claim", "word": "not measured", "text": f"{number} claims of the paper: {why}"}
        for why, number in reasons.items()
    ]


def beaten(claim: Claim, results: Results) -> str:
    """This access point beside a claim's `beat`, which is no claim of the paper."""
    if claim.beat is None:
        return ""
    limit = f"{claim.beat.sense} {claim.beat.value:g} {claim.beat.unit}"
    if claim.id not in claim_evidence.BEATEN:
        return f"{limit}: not run"
    answer = claim_evidence.BEATEN[claim.id]
    intervals = []
    for point in claim.points or (None,):
        found = answer(results, claim.sides[0], point)
        interval = found.interval() if found else None
        if found is None or interval is None or interval.n < claims.MIN_REPEATS[found.form]:
            return f"{limit}: not run"
        if interval not in intervals:  # a figure may be the same at every point of the claim
            intervals.append(interval)
    above = claim.beat.sense == "at least"
    holds = all(one.low >= claim.beat.value if above else one.high <= claim.beat.value for one in intervals)
    fails = any(one.high < claim.beat.value if above else one.low > claim.beat.value for one in intervals)
    verdict = "pass" if holds else "fail" if fails else "inconclusive"
    return f"{limit}: {verdict}, {'; '.join(map(shown, intervals))}"


def _ours(judgement: Judgement) -> str:
    """Measured figures: every part of a claim that has few, else the number of each word."""
    if len(judgement.conditions) <= MAX_SHOWN:
        return "; ".join(f"{part.where}: {shown(part.interval)}" for part in judgement.conditions)
    count = Counter(part.word for part in judgement.conditions)
    return ", ".join(f"{number} {word}" for word, number in count.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _figure(text: str) -> str:
    """A cell of a gain: a figure stands above its interval."""
    return re.sub(r"^(\S+) (\(\S+ to \S+\))$", r"\1<br>\2", _cell(text))


def page(results: Results) -> str:
    """The page: every claim as a row, by paper."""
    all_ = claims.load()
    words = {claim.id: judged(claim, results) for claim in all_}
    total = Counter(judgement.word for judgement in words.values())
    lines = [
        "# Claims of the papers, and their verdicts",
        "",
        *HEAD,
        "",
        *FOOT,
        "",
        f"Claims: checksum `{claims.sha256()[:16]}`.",
        "",
        "| paper | claims | " + " | ".join(claims.WORDS) + " |",
        "| --- |" + " ---: |" * (1 + len(claims.WORDS)),
    ]  # fmt: skip
    for paper, title in PAPERS.items():
        count = Counter(words[claim.id].word for claim in all_ if claim.paper == paper)
        numbers = [str(count[word]) for word in claims.WORDS]
        lines += [f"| {claims.CITED[paper]}: {title} | {count.total()} | {' | '.join(numbers)} |"]
    lines += [f"| together | {total.total()} | {' | '.join(str(total[word]) for word in claims.WORDS)} |"]
    if results.older:
        lines += ["", f"Measured before these claims stood, so not judged: {', '.join(sorted(results.older))}."]
    figures = claims.figures({name: judgement.word for name, judgement in words.items()}, all_)
    for paper, title in PAPERS.items():
        whole = [figure for (of, figure), word in figures.items() if of == paper and word == "reproduced"]
        lines += ["", f"## {claims.CITED[paper]}: {title}", ""]
        lines += [f"Figures of which every claim is reproduced: {'; '.join(whole) or 'none'}.", ""]
        for arm, other in claim_evidence.INSTEAD.items() if paper == "000" else ():
            if elsewhere := results.only(other, arm):
                lines += [f"{ELSEWHERE} {', '.join(elsewhere)}.", ""]
        lines += ["| claim | verdict | where | the paper | this lab |", "| --- | --- | --- | --- | --- |"]
        for claim in (claim for claim in all_ if claim.paper == paper):
            judgement = words[claim.id]
            here = "; ".join(text for text in (_ours(judgement), judgement.why) if text)
            cells = [f"`{claim.id}`", f"**{judgement.word}**", claim.figure, f"{claim.printed}: {claim.measure}", here]
            lines += [f"| {' | '.join(map(_cell, cells))} |"]
        own = [claim for claim in all_ if claim.paper == paper and claim.beat]
        if own:
            lines += [
                "",
                "This access point, compared with a goal beyond the paper's result (not a claim of the paper):",
                "",
            ]
            lines += [f"- `{claim.id}`: {beaten(claim, results)}" for claim in own]
        if beside := [*gains.rows(paper, results)]:
            lines += ["", *BESIDE, "", "| measure | peer | peer's value | this access point | ratio |"]
            lines += ["| --- | --- | ---: | ---: | ---: |", *(f"| {' | '.join(map(_figure, row))} |" for row in beside)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m accesspoint.experiments.verdict.judge", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="say with the exit code whether the pages are as they should be"
    )
    options = parser.parse_args()
    made = page(kept())
    from accesspoint.experiments.verdict import audit, pages  # they need summaries, which need words

    if options.check:
        old = pages.stale(RESULTS) + ([PAGE] if not PAGE.exists() or PAGE.read_text() != made else [])
        for path in old:
            print(f"{path.relative_to(ROOT)} is not what docs/results/summaries make")
        return int(bool(old))
    audit.keep(RESULTS)
    for path in pages.stale(RESULTS):
        name = path.stem
        write(path, pages.experiment_page(json.loads((SUMMARIES / f"{name}.json").read_text()), RESULTS))
        print(path.relative_to(ROOT))
    write(PAGE, made)
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
