# SPDX-License-Identifier: Apache-2.0
"""First lines of docstrings and doc comments: a verb or a noun of the field, never a relative clause (decision 37)."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools import words

ROOT = Path(__file__).resolve().parent.parent
RELATIVE = re.compile(r"(what|whether|whose|which|who|whoever|of|those|that|how|where|when|the same)\b", re.IGNORECASE)
OLD_BOUND = re.compile(r"\b_?(MOST|LONGEST|LARGEST|LEAST|SMALLEST|SHORTEST|FEWEST)_[A-Z]\w*\b")
DEBUG = re.compile(r"\{(\w*):#?\?\}")
QUOTED = {"role", "text", "given", "name", "origin", "other"}
"""Strings of clients, which `{:?}` quotes and escapes."""
TITLES = {"The same program set again as fast as it is taken, with all that was written to it, while others read"}
"""Titles of attacks, as pages name them."""


def tracked(pattern: str) -> list[Path]:
    words = ["git", "ls-files", "--", pattern]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if not (ROOT / name).is_symlink()]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and first line of each docstring of a module, attributes' included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for number, statement in enumerate(node.body):
                value = statement.value if isinstance(statement, ast.Expr) else None
                head = number == 0 or isinstance(node, ast.Module | ast.ClassDef)
                if head and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield statement.lineno, value.value.strip().partition("\n")[0]


def doc_comments(source: str) -> Iterator[tuple[int, str]]:
    """Line and first line of each doc comment of a Rust file."""
    before = ""
    for number, line in enumerate(source.splitlines(), 1):
        if (here := line.strip()).startswith("///") and not before.startswith("///"):
            yield number, here.removeprefix("///").strip()
        before = here


@pytest.mark.parametrize(("pattern", "read"), [("*.py", docstrings), ("*.rs", doc_comments)], ids=["Python", "Rust"])
def test_first_lines_open_with_a_verb_or_a_noun(pattern: str, read: Callable[[str], Iterator[tuple[int, str]]]) -> None:
    found, wrong = 0, []
    for path in tracked(pattern):
        for line, text in read(path.read_text()):
            found += 1
            if RELATIVE.match(text) and text not in TITLES:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert found > 1000
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("pattern", ["*.py", "*.rs"])
def test_bounds_are_named_max_and_min(pattern: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name[0]}"
        for path in tracked(pattern)
        if path != Path(__file__).resolve()
        for name in OLD_BOUND.finditer(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def debug_texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each Debug format that users may see: outside tests, assertions and panics."""
    for number, line in enumerate(source.partition("#[cfg(test)]")[0].splitlines(), 1):
        if not re.search(r"\b(assert|debug_assert|panic|unreachable)", line):
            yield from ((number, line.strip()) for name in DEBUG.findall(line) if name not in QUOTED)


def test_logs_and_errors_of_the_switch_hold_no_debug_text() -> None:
    assert list(debug_texts('let a = format!("{a:?}");')) and not list(debug_texts('format!("{role:?}")'))
    own = tracked("switch/*/src/*.rs")
    wrong = [f"{path.relative_to(ROOT)}:{at}: {text}" for path in own for at, text in debug_texts(path.read_text())]
    assert len(own) > 100 and not wrong, "\n".join(wrong)


SENTENCES = Path(__file__).with_name("words.txt").read_text().splitlines()
"""Sentences that cost readers a second reading, as they once were in docs, help texts, logs and messages."""


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_found_when_they_are_put_back(sentence: str) -> None:
    assert [*words.found(sentence, words.substitutions())]


def test_words_not_found_in_docs_help_and_messages() -> None:
    paths = words.tracked()
    assert {".md", ".py", ".rs", ""} <= {path.suffix for path in paths} and len(paths) > 300
    assert not [*words.hits(paths)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "# Page\n\nThe controller goes on.\n"),
        ("log.py", 'LOG.warning("%s goes on", name)\n'),
        ("log.rs", 'tracing::warn!("{name} goes on");\n'),
        ("clap.rs", "#[derive(Parser)]\nstruct Options {\n    /// It goes on.\n    name: bool,\n}\n"),
        ("Makefile", "run: ## it goes on\n"),
    ],
)
def test_words_searched_in_each_kind_of_file(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / name).write_text(text)
    assert [*words.hits([tmp_path / name])] == [
        f"{name}:{text.partition('goes')[0].count(chr(10)) + 1}: `goes on`: write: continue, resume"
    ]


def test_words_in_code_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("Run `goes on` with --beside:\n\n```sh\nmake beside\n```\n\nWhat is a flow?\n")
    assert not [*words.hits([tmp_path / "page.md"])]
