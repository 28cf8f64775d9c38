# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs.yml, which add to the pages of docs/: the reference, made from the code, and the project's own pages.

Pages are written to be read in the checkout; links from there to sources, of which the site has none, become plain
text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tools.site import reference

ROOT = Path(__file__).resolve().parents[2]

# Pages of the checkout's root -> their places on the site.
PROJECT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand `folder/part*` in the navigation to every such page, by its own title."""
    config.nav = expanded(config.nav or [])
    return config


def expanded(nav: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            pages = sorted((ROOT / "docs").glob(f"{entry}.md"))
            found += [
                {title(page): page.relative_to(ROOT / "docs").as_posix()} for page in pages if page.stem != "README"
            ]
        elif isinstance(entry, dict):
            found.append({name: expanded(one) if isinstance(one, list) else one for name, one in entry.items()})
        elif isinstance(entry, str) and entry.startswith("results/") and not entry.endswith("README.md"):
            found.append({title(ROOT / "docs" / entry): entry})
        else:
            found.append(entry)
    return found


def title(page: Path) -> str:
    """First heading of a page, without marks; of an experiment's page the experiment's name."""
    heading = page.read_text().partition("\n")[0].lstrip("# ").replace("`", "")
    return page.stem if heading.startswith(f"{page.stem}: ") else heading


def description(markdown: str) -> str:
    """First sentence below the heading, without marks: search engines show it."""
    opening = markdown.partition("\n")[2].strip().partition("\n\n")[0]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(opening.split()))
    return re.split(r"(?<=[.?:]) ", text)[0].rstrip(":")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    for source, path in PROJECT.items():
        if path != "index.md":
            files.append(File.generated(config, path, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are on the site."""
    page.meta.setdefault("description", description(markdown))
    here = page.file.src_uri
    sources = {path: source for source, path in PROJECT.items() if path != "index.md"}
    # Where the page is in the checkout, as seen from its root.
    place = posixpath.dirname(sources.get(here, f"docs/{here}"))

    def moved(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        there = posixpath.normpath(posixpath.join(place, target))
        if there in PROJECT:
            path = PROJECT[there]
        elif there.startswith("docs/"):
            path = there.removeprefix("docs/")
            if (ROOT / there).is_dir():
                path = posixpath.join(path, "README.md")
        elif (ROOT / there).exists():
            return words  # a source
        else:
            return match[0]  # broken: mkdocs says so
        return f"{picture}[{words}]({posixpath.relpath(path, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(moved, markdown)
