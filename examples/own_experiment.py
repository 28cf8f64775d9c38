# SPDX-License-Identifier: Apache-2.0
"""An experiment of one's own: what is left of a download beside an upload?

.venv/bin/python -m examples.own_experiment
"""

from accesspoint import experiment as exp

EXPERIMENT = exp.Experiment(
    name="beside-upload",
    title="A download during an upload",
    paper="none: an example",
    question="How much of a download remains during an upload, plain and with this access point?",
    scene=exp.AccessPoint(
        exp.LinkProfile("mine", down=8_000_000, up=1_000_000),
        seconds=12,
        traffic=(exp.Flow("download", "down"), exp.Flow("upload", "up", 4, 12)),
        probed=False,
    ),
    arms=(exp.Arm("plain", "plain FIFO", "plain", exp.PLAIN), exp.Arm("ours", "ours", "ours", exp.OURS)),
    measures=(exp.Measure("download", "Mb/s", "download during the upload", exp.rate("download", 4, 12)),),
    figures=(exp.Bars("during", "During the upload.", ("download",), "throughput (Mb/s)"),),
    quick=exp.Quick(seconds=4, repeats=1),
)

if __name__ == "__main__":
    summary = exp.run(__file__, "beside-upload", quick=True)
    for cell in summary["cells"]:
        print(f"{cell['arm']}: {cell['median']:.1f} Mb/s")
