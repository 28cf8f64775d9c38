# SPDX-License-Identifier: Apache-2.0
"""Colours and manners of pictures, for light and dark pages. Pictures drawn twice from the same data are the same."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Theme:
    """Colours of a page."""

    name: str
    paper: str
    ink: str
    faint: str
    shade: str
    down: str
    up: str
    ping: str
    arms: tuple[str, ...]


LIGHT = Theme(
    "light", "#ffffff", "#1d2430", "#8a94a6", "#eef1f6", "#1f6fd6", "#e0710a", "#7a3fb8",
    ("#d0342c", "#d99a00", "#0b8f6a", "#1f6fd6", "#7a3fb8"),
)  # fmt: skip
DARK = Theme(
    "dark", "#12161d", "#e6eaf2", "#7c879b", "#1e2530", "#5aa2ff", "#ff9f45", "#c08bff",
    ("#ff6b61", "#ffc53d", "#35d0a0", "#5aa2ff", "#c08bff"),
)  # fmt: skip
THEMES = (LIGHT, DARK)


def settings(theme: Theme) -> dict[str, Any]:
    return {
        "font.family": "DejaVu Sans", "font.size": 10, "svg.hashsalt": "plots", "svg.fonttype": "path",
        "figure.facecolor": theme.paper, "axes.facecolor": theme.paper, "savefig.facecolor": theme.paper,
        "text.color": theme.ink, "axes.labelcolor": theme.ink, "axes.edgecolor": theme.faint,
        "xtick.color": theme.ink, "ytick.color": theme.ink, "grid.color": theme.faint, "grid.alpha": 0.25,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
        "lines.linewidth": 1.8, "lines.solid_capstyle": "round",
    }  # fmt: skip


def save(name: str, draw: Callable[[Theme], Figure], directory: Path, png: bool = False) -> None:
    """Draws a picture as NAME.svg and NAME-dark.svg, and as PNG where asked for."""
    for theme in THEMES:
        stem = name if theme is LIGHT else f"{name}-dark"
        with mpl.rc_context(settings(theme)):  # type: ignore[arg-type]
            figure = draw(theme)
            figure.savefig(directory / f"{stem}.svg", metadata={"Date": None})
            if png:
                figure.savefig(directory / f"{stem}.png", dpi=144)
