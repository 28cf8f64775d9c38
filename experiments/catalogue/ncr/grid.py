# SPDX-License-Identifier: Apache-2.0
"""The paper's grid of one to three downloads beside one to five uploads (Table 1, Fig. 7)."""

from accesspoint.experiments.catalogue.ncr.testbed import NCR_PAPER, NCR_UPLINK, PLACE
from accesspoint.experiments.experiment import OURS, Arm, Bars, Curves, Experiment, Measure, Quick
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

DOWNLOADS, UPLOADS = (1, 2, 3), (1, 2, 3, 4, 5)
ALONE = 0  # uploads: what the others are compared with
THIRDS = {"downloads": DOWNLOADS, "uploads": (ALONE, 1, 3, 5)}
"""Three points of each axis, both ends among them: the fewest that claims.toml asks of a quick form (R5)."""


EXPERIMENT = Experiment(
    name="ncr-grid",
    title="Downloads during uploads, by their numbers",
    paper="000, section 4.1.1, Table 1, Fig. 7",
    question="Do several downloads hold against several uploads, and what do all of them carry and wait?",
    sweep={"downloads": DOWNLOADS, "uploads": (ALONE, *UPLOADS)},
    scene=lambda point, arm: AccessPoint(
        PROFILES["wlan"],
        60,
        (
            *(Flow(f"download {n}", "down") for n in range(1, int(point["downloads"]) + 1)),
            *(Flow(f"upload {n}", "up") for n in range(1, int(point["uploads"]) + 1)),
        ),
    ),
    arms=(
        Arm("fifo", "plain FIFO", "plain"),
        NCR_UPLINK,
        NCR_PAPER,
        Arm("ours", "this access point", "ours", OURS),
    ),
    measures=(
        Measure("download", "Mb/s", "all downloads", rate("download*")),
        Measure("upload", "Mb/s", "all uploads", rate("upload*")),
        Measure("total", "Mb/s", "all together", rate("*load*")),
        Measure("delay", "ms", "delay of both ways together, mean", mean("ping_ms"), "{:.1f}"),
        Measure("ping_p99", "ms", "ping, 99th percentile", quantile("ping_ms", 0.99), "{:.1f}"),
    ),
    figures=(
        Curves("total", "All flows together with 1 download, over the number of uploads (Fig. 7a).", "total",
               "uploads", "uploads", "throughput (Mb/s)", point={"downloads": 1}),
        Curves("downloads", "All downloads, of which there are 3, over the number of uploads (Table 1).", "download",
               "uploads", "uploads", "throughput (Mb/s)", point={"downloads": 3}),
        Curves("delay", "Delay of both ways together with 1 download (Fig. 7b).", "delay",
               "uploads", "uploads", "delay (ms)", point={"downloads": 1}, log=True),
        Bars("most", "3 downloads and 5 uploads.", ("download", "upload", "total"), "throughput (Mb/s)",
             point={"downloads": 3, "uploads": 5}),
    ),
    repeats=10,
    # Three times what a full uplink takes to drain.
    quick=Quick(seconds=36, arms=("fifo", "ncr-uplink"), sweep=THIRDS),
    differences=(
        "Table 1 is a picture in the source: its single numbers are not known, only the two ratios that the text"
        " gives for Fig. 7: 2.58 times the throughput, 6.85 times less delay",
        "the delay is a probe's, both ways added up",
        "all flows are one station's",
        PLACE,
        "the quick form has nine of the fifteen points, and Fig. 7(a) is taken over these: the text does not say"
        " whether 2.58 is of all or of one",
    ),
    clock=VIRTUAL,
)  # fmt: skip
