# SPDX-License-Identifier: Apache-2.0
"""The commands of the README and of docs/ are true.

A fenced block ```sh holds commands for the reader. `make` commands that run for minutes are checked with `make -n`
(target, variables and tools exist), all others are executed. A block behind a comment, `<!-- prompt -->`,
`<!-- lab -->`, `<!-- controller -->`, `<!-- namespace -->` or `<!-- ns-3 -->`, belongs to a lab's prompt, a running
lab, controller or host, or to ns-3, and is executed by the tests of that component. Examples are executed by
tests/test_examples.py, the commands of CONTRIBUTING.md by tests/test_contributing.py. A block
```python is a whole script. A block ```text right after commands that are executed shows what they print, numbers
aside; tests/test_blocks.py judges all others.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, Block, blocks, like


def commands() -> list[tuple[str, str]]:
    """(page, command line) of every ```sh block, each line once. Examples and CONTRIBUTING.md have their own test."""
    found: dict[str, str] = {}
    for block in blocks():
        for line in block.commands if block.executed and block.page != "CONTRIBUTING.md" else []:
            if not line.startswith(".venv/bin/python -m examples."):
                found.setdefault(line, block.page)
    return [(page, line) for line, page in found.items()]


def files_of_git(*patterns: str) -> list[str]:
    """Return the names of the files that git tracks."""
    done = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


MAX_WORDS = 45_000  # of all pages but results and decisions
PRINTED: dict[str, str] = {}
"""Output of the commands, for the blocks that show it."""


def printed(command: str, page: str) -> str:
    if command.startswith("make ") and command != "make help":
        command = command.replace("make ", "make -n ", 1)
    if command not in PRINTED:
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, f"{page}: {command}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
        PRINTED[command] = done.stdout + done.stderr  # a lab's prompt is on stderr
    return PRINTED[command]


@pytest.mark.parametrize(("page", "command"), commands())
def test_command_runs(page: str, command: str) -> None:
    printed(command, page)


@pytest.mark.parametrize(
    "block", [block for block in blocks() if block.shows and not block.text.startswith(".venv/")], ids=str
)
def test_what_a_page_shows_is_what_its_commands_print(block: Block) -> None:
    assert block.before
    everything = "\n".join(printed(command, block.page) for command in block.before.commands)
    assert like(block.text, everything), everything


@pytest.mark.parametrize(
    ("page", "script"),
    [(b.page, b.text) for b in blocks() if b.language == "python" and b.place is None],
)
def test_script_runs(page: str, script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{page}: {done.stderr[-2000:]}"


def test_pages_hold_commands() -> None:
    assert ("README.md", "make run") in commands()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_opens_with_its_contents(page: Path) -> None:
    """Heading, then a paragraph that is shown by search engines: no address of the reader, no block."""
    heading, _, rest = page.read_text().partition("\n")
    opening = rest.strip().partition("\n\n")[0]
    assert heading.startswith("# ")
    assert re.match(r"[\w*`\[]", opening) and not re.match(r"This (page )?is for|For those", opening), opening


def test_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_guides_are_short() -> None:
    guides = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.parent.name not in RECORDS]
    assert sum(len(page.read_text().split()) for page in guides) <= MAX_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


FOLDERS = sorted({name.partition("/")[0] for name in files_of_git() if "/" in name})
NAMED = re.compile(rf"(?<![\w./:@-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*")
RECORDS = ("results", "decisions")  # they name files of their day, and of other projects
NAMING = [
    *(page for page in PAGES if page.parent.name not in RECORDS),
    ROOT / "Makefile",
    *(ROOT / name for name in files_of_git("examples", "packaging/*.md")),
]


def missing_files(text: str) -> list[str]:
    """Return the files and folders of this checkout that a text names and that do not exist. A part in capitals is for
    the reader to fill in; links have a test of their own."""
    found = {match[0].rstrip("./") for match in NAMED.finditer(re.sub(r"\]\([^)]*\)", "]", text))}
    named = [name for name in sorted(found) if not any(part.isupper() for part in name.split("/"))]
    return [name for name in named if not any(ROOT.glob(name))]


@pytest.mark.parametrize("page", NAMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert not missing_files(page.read_text())


def test_missing_file_in_a_text_is_found() -> None:
    text = "See `switch/core/src/lib.rs`, tools/gone.py, `docs/*.md`, `docs/*.odt`, experiments/AREA/ and x/tools/y."
    assert missing_files(text) == ["docs/*.odt", "tools/gone.py"]


def paths_in_tables(page: str) -> set[str]:
    """Return the paths that the tables of a page name as `a/place` or `a/file.py`."""
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    return {path for row in rows for path in re.findall(r"`([\w.-]+/[\w./-]*)`", row)}


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_where_a_stranger_is_sent_there_is_something(page: str) -> None:
    paths = paths_in_tables(page)
    assert len(paths) > 8
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("what", ["stage", "metric", "REST resource", "experiment", "congestion control"])
def test_a_strangers_question_is_answered_in_one_line(what: str) -> None:
    answers = re.findall(rf"^\| an? {what}[^|]*\| (.*) \|$", (ROOT / "docs/architecture.md").read_text(), re.M)
    assert len(answers) == 1 and len(re.findall(r"`([\w.-]+/[\w./-]*)`", answers[0])) == 1
