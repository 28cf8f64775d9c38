# SPDX-License-Identifier: Apache-2.0
"""The paper's testbed with both of its applications: Iperf, and a stand-in for FileZilla, in either direction."""

from collections.abc import Mapping
from dataclasses import replace

from accesspoint.experiments.catalogue.ncr.testbed import NCR_UPLINK, of_payload
from accesspoint.experiments.experiment import OURS, Arm, Bars, Experiment, Measure, Quick, Reported, Timeline
from accesspoint.experiments.measure.run_data import quantile, rate, variation
from accesspoint.experiments.scenes.ftp import FileTransfer
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

SECONDS, UP = 120, 60
IPERF, FTP = "Iperf", "FTP"
# End of the arm's name: source of the download, of the upload.
SOURCES: Mapping[str, tuple[str, str]] = {
    "": (IPERF, IPERF), "-ftp": (FTP, FTP), "-ftp-down": (FTP, IPERF), "-ftp-up": (IPERF, FTP),
}  # fmt: skip
BASES = (Arm("fifo", "plain FIFO", "plain"), NCR_UPLINK, Arm("ours", "this access point", "ours", OURS))


def _arms(base: Arm) -> list[Arm]:
    """An arm with each pair of sources."""
    return [
        replace(
            base, name=base.name + end, label=f"{base.label}; {down} down, {up} up", options={"sources": (down, up)}
        )
        for end, (down, up) in SOURCES.items()
    ]


def _scene(arm: Arm) -> AccessPoint:
    down, up = ({IPERF: Flow, FTP: FileTransfer}[source] for source in arm.options["sources"])
    return AccessPoint(of_payload(PROFILES["testbed"]), SECONDS, (down("download", "down"), up("upload", "up", UP)))


EXPERIMENT = Experiment(
    name="ncr-applications",
    title="A download during an upload, of two applications",
    paper="000, sections 2 and 4.2, Fig. 1, 14",
    question="Does a download lose as much, and get as much back, when FTP moves a file in place of iperf3?",
    scene=lambda point, arm: _scene(arm),
    arms=tuple(arm for base in BASES for arm in _arms(base)),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("variation_alone", "1", "its variation, in bins of 1 s", variation("download", 0, UP), "{:.4f}"),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", UP)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP)),
        Measure("total_during", "Mb/s", "both together", rate("*load", UP)),
        Measure("ping_during", "ms", "ping under load, median", quantile("ping_ms", 0.5, UP), "{:.1f}"),
    ),
    reported=(
        Reported("download_alone", "fifo", 14, "Fig. 1"),
        Reported("download_alone", "fifo-ftp", 14, "Fig. 1"),
        Reported("total_during", "fifo", 1.28, "Fig. 14, section 4.2"),
        Reported("total_during", "fifo-ftp", 1.24, "Fig. 14, section 4.2"),
        Reported("download_during", "ncr-uplink", 11.6, "Fig. 14, section 4.2"),
        Reported("download_during", "ncr-uplink-ftp", 10.7, "Fig. 14, section 4.2"),
        Reported("total_during", "ncr-uplink", 11.7, "Fig. 14, section 4.2"),
        Reported("total_during", "ncr-uplink-ftp", 11.0, "Fig. 14, section 4.2"),
    ),
    figures=(
        Timeline(
            "throughput", "Throughput over time, as in Fig. 1 and 14; dashed: the paper's figures.",
            ("download", "upload"),
            levels={"download_alone": (0, UP), "download_during": (UP, SECONDS)},
        ),
        Bars(
            "during", "While both run: what each arm carries. Lines across: the paper's figures.",
            ("download_during", "upload_during", "total_during"), "throughput (Mb/s)",
        ),
    ),
    repeats=10,
    # As long as in ncr-testbed's: a third of the paper's time.
    quick=Quick(
        seconds=40, arms=("fifo", "fifo-ftp", *(NCR_UPLINK.name + end for end in SOURCES), "ours", "ours-ftp")
    ),
    differences=(
        "FTP is a stand-in for FileZilla: vsftpd, and the client lftp, which reads up to 64 KiB of what has come, "
        "writes them to a file, and waits 10 ms before it reads again; its sockets have the buffers that FileZilla "
        "asks for, as far as the Linux of 2018 gave them",
        "in virtual time programs compute and write in no time: of the slowness that the paper sees in FTP's reading "
        "in user mode, only lftp's waits are left",
        "the links' rates are constant, where a radio's vary",
        "a rate is what the receiving application has read in a quarter of a second, with FTP what its file grew; one "
        "of lftp's reads, 19 KB, is 0.008 Mb/s in the mean of 19 s: a smaller difference says nothing",
        "Iperf is iperf3, whose buffers the kernel chooses",
        "the paper lists no combinations: here they are all four",
        "the links, the uplink's queue and NCR's place are those of ncr-testbed",
    ),
    clock=VIRTUAL,
    apart=True,
)  # fmt: skip
