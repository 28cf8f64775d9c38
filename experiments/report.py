# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file with everything in it, for light and dark screens."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import site
from experiments.live import LiveExperiment, Summary
from experiments.metrics import Verdict

CAPTIONS = {
    "overview": "Throughput and ping over time; the upload runs in the shaded part.",
    "ping-cdf": "How long the probes took while the upload ran.",
    "controller": "The uplink's queue and the feedback that the controller computed.",
}


def write(
    experiment: LiveExperiment,
    summary: Summary,
    decided: Sequence[Verdict],
    peers: dict[str, Any] | None,
    pictures: Sequence[str],
    directory: Path,
) -> None:
    """Writes `report.html` beside the pictures and data that it links to."""
    page = (
        site.environment()
        .get_template("report.html.j2")
        .render(
            experiment=experiment,
            summary=summary,
            verdicts=decided,
            peers=peers,
            pictures=[
                {
                    "name": name,
                    "caption": CAPTIONS[name if name in CAPTIONS else name.split("-")[0]],
                    "light": _embedded(directory / f"{name}.svg"),
                    "dark": _embedded(directory / f"{name}-dark.svg"),
                }
                for name in pictures
            ],
            files=sorted(path.name for path in directory.glob("*.flent.gz")),
        )
    )
    (directory / "report.html").write_text(page)


def _embedded(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
