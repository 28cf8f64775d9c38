# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of the README and of docs/, for the tests that hold them true."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")),
        ROOT / "switch/fuzz/README.md",
        *ROOT.glob("docs/**/*.md"),
    ]
)
PLACES = ("prompt", "lab", "controller", "namespace", "ns-3")
"""Places of blocks that a component's own tests execute, each in a comment above its block: `<!-- controller -->`."""
FENCE = re.compile(rf"^(?:<!-- ({'|'.join(PLACES)})(?:: [\w ]+)? -->\n)?```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    text: str
    before: "Block | None" = None  # the one above it on its page
    between: str = ""  # what stands between the two
    place: str | None = None  # one of PLACES

    @property
    def commands(self) -> list[str]:
        """The lines of a block of commands: comments gone, continued lines folded."""
        lines = (line.split("  #")[0].strip() for line in self.text.replace("\\\n", " ").splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    @property
    def executed(self) -> bool:
        """Return whether tests/test_docs.py runs the block as commands of this checkout's."""
        return self.language == "sh" and self.place is None

    @property
    def shows(self) -> bool:
        """Return whether the block is the output of the commands right above it."""
        return self.language == "text" and self.before is not None and self.before.executed and not self.between.strip()

    @property
    def shows_a_step(self) -> bool:
        """Return whether the block is the output of a quick start's step right above it."""
        return self.language == "text" and self.before is not None and self.before.language == "bash"

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0].strip()}"


def blocks() -> list[Block]:
    found: list[Block] = []
    for path in PAGES:
        text, page, at, before = path.read_text(), str(path.relative_to(ROOT)), 0, None
        for match in FENCE.finditer(text):
            before = Block(page, match[2], match[3], before, text[at : match.start()], match[1])
            at = match.end()
            found.append(before)
    return found


def like(shown: str, printed: str) -> bool:
    """Return whether a page's lines are in the output, in their order: numbers, their units' prefixes, blanks and `...`
    match anything."""
    at = 0
    for line in filter(str.strip, shown.splitlines()):
        if line.strip() == "...":
            continue
        words = re.escape(" ".join(line.split()))
        words = re.sub(r"[KMG]?(Bytes|bits)", r"[KMG]?\1", re.sub(r"\d+(?:\\\.\d+)?", r"[\\d.]+", words))
        if not (match := re.compile(words.replace(r"\.\.\.", ".*").replace(r"\ ", r"\s+")).search(printed, at)):
            return False
        at = match.end()
    return True


def words_of(command: str) -> list[list[str]]:
    """The programs that a line calls, each with its words, without prompt, sudo and what a shell adds."""
    line = re.sub(r"^(?:\S+\$|\$)\s+", "", command)
    # Quoted operators belong to a word: an even number of quotes follows those that separate programs.
    calls = re.split(r"\s+(?:&&|\|)\s+(?=[^']*(?:'[^']*'[^']*)*$)", line)
    return [words[1:] if words[0] == "sudo" else words for words in map(shlex.split, calls)]
