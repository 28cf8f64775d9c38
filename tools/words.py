#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Find words that docs/style.md replaces, in Markdown, string literals and help texts.

.venv/bin/python tools/words.py [FILE...]

Its table of substitutions is the list. Measured pages (docs/results), decisions and the changelog are records and are
not searched, nor are tests, whose strings are data.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STYLE = ROOT / "docs/style.md"
RECORDS = re.compile(
    r"docs/(results|decisions)/|docs/style\.md|(^|/)tests?(/|_)|harness/|protos/|tools/words\.py|"
    r"checks/conformance/checks/"
)
OPENING = re.compile(
    r"(?:^|[.:!] |\| )(?:[-*\d.#]+ )*\**(What|Who|Whoever|Whose|Whom|Whether)\b[^?|]*?(?:[.;|]|$)", re.M
)
HELP = re.compile(r"controller/(apctl|api)/|__main__\.py")  # docstrings of these are shown to users
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->|--[\w-]+|\b[A-Z_]+=\S+", re.M | re.S)
RUST = re.compile(r"""^\s*/// ?([^\n]*)|//[^\n]*|'\\?"'|r#"(.*?)"#|"((?:[^"\\]|\\.)*)\"""", re.M | re.S)


def substitutions() -> dict[str, str]:
    """Return phrase -> the words in its place, from the table of docs/style.md."""
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", STYLE.read_text(), re.M)
    return {phrase: better for left, better in rows for phrase in re.findall(r"`([^`]+)`", left)}


@functools.cache
def pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of all phrases, the longest first: lower case matches any case."""
    words = sorted(phrases, key=len, reverse=True)
    any_case, exact = ([re.escape(one) for one in words if (one == one.lower()) == low] for low in (True, False))
    text = rf"(?:(?<!\w)|(?=[',]))(?:(?i:{'|'.join(any_case)})|{'|'.join(exact)})\b"
    return re.compile(text.replace(r"\ ", r"\s+"))


def found(text: str, table: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """Position, phrase and substitution of each hit in prose."""
    for match in pattern(tuple(table)).finditer(text):
        phrase = " ".join(match[0].split())
        phrase = phrase if phrase in table else phrase.lower()
        yield match.start(), phrase, table[phrase]
    for match in OPENING.finditer(text):
        yield match.start(1), f"{match[1]} ...", "a noun at the beginning"


def blanked(match: "re.Match[str]") -> str:
    return re.sub(r"[^\n]", " ", match[0])


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """First line and text of each piece of prose of a file."""
    source = path.read_text()
    if path.suffix == ".md":
        yield 1, source
    elif path.suffix == ".py":
        tree = ast.parse(source)
        help_ = HELP.search(path.relative_to(ROOT).as_posix())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            match node:
                case ast.Constant(value=str(text)) if " " in text and (help_ or id(node) not in docs):
                    yield node.lineno, text
    elif path.suffix == ".rs":
        clap = re.search(r"derive\([^)]*\b(Parser|Args|Subcommand|ValueEnum)\b", source)
        for match in RUST.finditer(source.partition("#[cfg(test)]")[0]):
            yield source.count("\n", 0, match.start()) + 1, match[2] or match[3] or (match[1] if clap else None) or ""
    elif path.name == "Makefile":
        for number, line in enumerate(source.splitlines(), 1):
            yield number, line.partition("## ")[2]


def hits(paths: list[Path]) -> Iterator[str]:
    """One line for each hit."""
    table = substitutions()
    for path in paths:
        for first, text in prose(path):
            for at, phrase, better in found(CODE.sub(blanked, text), table):
                yield f"{path.relative_to(ROOT)}:{first + text.count(chr(10), 0, at)}: `{phrase}`: write: {better}"


def tracked() -> list[Path]:
    """Return the files that are searched."""
    words = ["git", "ls-files", "--", "*.md", "*.py", "*.rs", "Makefile"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if not RECORDS.search(name) and not (ROOT / name).is_symlink()]


if __name__ == "__main__":
    lines = [*hits([Path(name).resolve() for name in sys.argv[1:]] or tracked())]
    print("\n".join(lines), file=sys.stderr)
    sys.exit(1 if lines else 0)
