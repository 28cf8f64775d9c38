# SPDX-License-Identifier: Apache-2.0
"""The documentation's site is built, whole and without a broken link, and says what the results say."""

import importlib
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from accesspoint.checks.harness.browser import browser, missing_browser
from accesspoint.checks.harness.waiting import eventually

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.timeout(900)  # the site is built within the first test


def build(*options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("site")
    done = build("--site-dir", str(there))
    assert done.returncode == 0, done.stdout + done.stderr
    return there


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("reference/rest.html", "/api/v1/access-points/{name}/flows"),
        ("reference/commands.html", "apctl get"),
        ("reference/commands.html", "apswitch explain"),
        ("reference/commands.html", "apswitch trace"),
        ("reference/p4.html", "port_feedback"),
        ("reference/python.html", "rest_token"),
        ("decisions/0001-ack-memory.html", "generation"),
        ("project/contributing.html", "Submit a change"),
    ],
)
def test_what_is_made_of_the_code_is_there(site: Path, page: str, words: str) -> None:
    assert words in re.sub(r"<[^>]+>", "", (site / page).read_text())


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert not loaded, f"{page.name}: {loaded}"


@pytest.mark.parametrize("page", ["index.html", "controller/fleet.html", "results/many.html"])
def test_page_has_description_of_its_own(site: Path, page: str) -> None:
    found = re.findall(r'<meta name="description" content="([^"]*)">', (site / page).read_text())
    source = (ROOT / "docs" / page.replace(".html", ".md")).read_text()
    assert len(found) == 1 and found[0].split()[:6] == source.split("\n\n")[1].split()[:6]


@pytest.mark.skipif(missing_browser() is not None, reason=str(missing_browser()))
def test_search_from_disk_finds_page(site: Path) -> None:
    with browser() as window:
        window.open(f"file://{site}/index.html")
        window.run("document.querySelector('[data-md-toggle=search]').click()")
        window.type("input.md-search__input", "glossary")
        assert eventually(lambda: "Glossary and names" in window.text(".md-search-result"), 120)


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[nowhere](nowhere.md)\n")
    own = (ROOT / "mkdocs.yml").read_text()
    rules = re.search(r"^strict: true\n.*?(?=^theme:)", own, re.M | re.S)
    assert rules
    (tmp_path / "mkdocs.yml").write_text(f"site_name: one\n{rules[0]}")
    done = build("--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0 and "nowhere.md" in done.stderr


def test_first_pages_say_what_was_measured() -> None:
    figures = importlib.import_module("tools.site.figures")
    assert len(figures.PAGES) == 2
    for page in figures.PAGES:
        assert figures.made(page) == page.read_text(), "renew it with .venv/bin/python tools/site/figures.py"
    lost = (ROOT / "README.md").read_text().partition("Where CAKE is better")[2].partition("\n\n")[0]
    said = re.findall(r"[\d.]+%|0\.\d+", lost)
    assert len(said) == 5
    assert all(figure in (figures.RESULTS / "peers.md").read_text() for figure in said)
    bare = re.search(r"without which it leaves ([\d.]+) Mb/s", (ROOT / "README.md").read_text())
    lines = (figures.RESULTS / "peers-testbed.md").read_text().splitlines()
    row = next(line for line in lines if "**cake-ack-filter**" in line)
    assert bare and f"| {bare[1]}<br>" in row
    overview = figures.overview
    kept = overview.page(overview.kept(figures.RESULTS), figures.audit.kept(figures.RESULTS))
    assert kept == (figures.RESULTS / "peers.md").read_text(), "renew it with .venv/bin/python tools/site/figures.py"


def test_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = {"accesspoint": re.search(r'^__version__ = "(.*)"', (ROOT / "accesspoint/__init__.py").read_text(), re.M)}
    found["CITATION.cff"] = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    found["Cargo.toml"] = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    for name in ("apswitch", "hosts", "batcp"):
        assert [package["version"] for package in lock["package"] if package["name"] == name] == [version]
    assert {name: match and match[1] for name, match in found.items()} == dict.fromkeys(found, version)


def test_the_changelog_begins_with_this_version_and_its_tags_note() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert re.match(
        rf"{re.escape(version)}(, unreleased| - \d{{4}}-\d\d-\d\d)\n\nThe note of the tag `v{version}`: ", newest
    )


def words_beyond_their_box(picture: str) -> list[str]:
    """Texts of an SVG that are wider than the box they are in the middle of: a letter is about half as wide as high."""
    root = ElementTree.fromstring(picture)
    boxes = [
        tuple(float(box.get(side, "0")) for side in ("x", "y", "width", "height"))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
        if box.get("class") != "bg"
    ]
    wide = []
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        x, y, said = float(text.get("x", "0")), float(text.get("y", "0")), "".join(text.itertext())
        size = 12 if {"small", "note"} & set((text.get("class") or "").split()) else 14
        for left, top, width, height in boxes:
            if left < x < left + width and top < y < top + height and len(said) * size * 0.5 > width:
                wide.append(said)
    return wide


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.name)
def test_words_stay_in_their_boxes(picture: Path) -> None:
    assert words_beyond_their_box(picture.read_text()) == []
