# SPDX-License-Identifier: Apache-2.0
"""Colours and manners of pictures. A picture is one file for light and dark pages, and drawn twice from the same data
it is the same.

It has the light colours, so that it is right wherever it is opened, and a style sheet that gives each of them its dark
one where the reader's scheme is dark.
"""

import io
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Colours:
    """Colours of a picture."""

    paper: str
    ink: str
    faint: str
    shade: str
    down: str
    up: str
    ping: str
    red: str
    yellow: str
    green: str

    @property
    def arms(self) -> tuple[str, ...]:
        return self.red, self.yellow, self.green, self.down, self.ping


LIGHT = Colours(
    "#ffffff", "#1d2430", "#8a94a6", "#eef1f6", "#1f6fd6", "#e0710a", "#7a3fb8", "#d0342c", "#d99a00", "#0b8f6a"
)
DARK = Colours(
    "#12161d", "#e6eaf2", "#7c879b", "#1e2530", "#5aa2ff", "#ff9f45", "#c08bff", "#ff6b61", "#ffc53d", "#35d0a0"
)
SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10, "svg.hashsalt": "plots", "svg.fonttype": "path",
    "figure.facecolor": LIGHT.paper, "axes.facecolor": LIGHT.paper, "savefig.facecolor": LIGHT.paper,
    "text.color": LIGHT.ink, "axes.labelcolor": LIGHT.ink, "axes.edgecolor": LIGHT.faint,
    "xtick.color": LIGHT.ink, "ytick.color": LIGHT.ink, "grid.color": LIGHT.faint, "grid.alpha": 0.25,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "lines.linewidth": 1.8, "lines.solid_capstyle": "round",
}  # fmt: skip
_HASHED = re.compile(r'(?<= id=")[a-z][0-9a-f]{10}(?=")')
_USED = re.compile(r'( id="|#)([a-z][0-9a-f]{10})\b')


def save(name: str, draw: Callable[[], Figure], directory: Path) -> None:
    """Draw a picture as NAME.svg."""
    drawn = io.StringIO()
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        draw().savefig(drawn, format="svg", metadata={"Date": None})
    (directory / f"{name}.svg").write_text(with_dark(numbered(drawn.getvalue())))


def numbered(svg: str) -> str:
    """Replace the identifiers that are hashes by numbers in their order: of a place on the page matplotlib hashes all
    digits, and the last one is another on another processor."""
    numbers = {name: f"{name[0]}{number}" for number, name in enumerate(dict.fromkeys(_HASHED.findall(svg)), start=1)}
    return _USED.sub(lambda used: f"{used[1]}{numbers.get(used[2], used[2])}", svg)


def with_dark(svg: str) -> str:
    """Add the dark colours to a picture in the light ones."""
    pairs = zip(astuple(LIGHT), astuple(DARK), strict=True)
    rules = [
        f'  [style*="{paint}: {light}"] {{ {paint}: {dark} !important }}\n'
        for light, dark in pairs
        for paint in ("fill", "stroke")
        if f"{paint}: {light}" in svg
    ]
    sheet = f"<style>@media (prefers-color-scheme: dark) {{\n{''.join(rules)} }}</style>\n"
    before, found, after = svg.partition(" <defs>\n")
    assert found, "matplotlib begins a picture with its definitions"
    return f"{before} {sheet}{found}{after}"
