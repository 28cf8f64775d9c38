# SPDX-License-Identifier: Apache-2.0
"""A file over one or two interfaces of a host: by TCP, by kernel MPTCP, by BATCP with either scheduler."""

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accesspoint.experiments.scenes.scene import HOSTS, require_hosts
from accesspoint.topologies.requirements import ROOT

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

STREAM = ROOT / "hosts/peers/stream.py"
IPPROTO_TCP, IPPROTO_MPTCP = 6, 262
PORT = 7000


@dataclass(frozen=True)
class File:
    """A file from the phone to the server. Sample `kbit_per_s` when it is there, and of BATCP `segments` of source
    `link1`, `link2`: what each has carried.

    how: `tcp` over one link, `mptcp`, or a scheduler of BATCP over all. link: of TCP, its number. A transfer counts
    from its first SYN to the receiver's word that all is there.
    """

    octets: int
    how: str
    link: int = 1

    def prepare(self, stage: "Stage") -> None:
        links = stage.lab.links
        phone = stage.station(1)
        if self.how in ("tcp", "mptcp"):
            protocol = str(IPPROTO_MPTCP if self.how == "mptcp" else IPPROTO_TCP)
            if self.how == "mptcp":
                for host in (phone, stage.server):
                    host.ip("mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4")
                for link in links[1:]:
                    stage.server.ip("mptcp", "endpoint", "add", link.b_ip, "dev", link.b_if, "signal")
            receiver = stage.program(
                stage.server, sys.executable, str(STREAM), "receive", str(PORT), protocol, may_end=True
            )
            receiver.await_line("listening")
            words = [
                sys.executable,
                str(STREAM),
                "send",
                links[self.link - 1].b_ip,
                str(PORT),
                protocol,
                str(self.octets),
            ]
        else:
            require_hosts()
            file, into = stage.directory / "file", stage.directory / "received"
            file.write_bytes(os.urandom(self.octets))
            into.mkdir()
            key = stage.directory / "batcp.key"
            key.touch(0o600)
            key.write_text(os.urandom(16).hex())
            both = ["--scheduler", self.how, "--json", "--key-file", str(key)]
            receive = [str(HOSTS), "batcp", "receive", "--listen", f"0.0.0.0:{PORT}", "--output", str(into), *both]
            stage.program(stage.server, *receive, "--count", "1", may_end=True).await_line("listening on")
            words = [str(HOSTS), "batcp", "send", str(file), *both]
            words += [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}", "--interface", link.a_if)]
        stage.at(0.0, lambda: self._begin(stage, words))

    def _begin(self, stage: "Stage", words: list[str]) -> None:
        stage.program(stage.station(1), *words, take=lambda line: self._take(stage, line), may_end=True)

    def _take(self, stage: "Stage", line: str) -> None:
        seconds = None
        if line.startswith("{"):
            summary = json.loads(line)
            seconds = self.octets * 8e-3 / float(summary["kbit_per_second"])
            carried = {total["interface"]: total["segments_sent"] for total in summary["status"]["totals"]}
            for number, link in enumerate(stage.lab.links, start=1):
                stage.sample(stage.now(), "segments", carried.get(link.a_if, 0), source=f"link{number}")
        elif line.strip().replace(".", "", 1).isdecimal():
            seconds = float(line)
        if seconds is not None:
            stage.sample(stage.now(), "kbit_per_s", self.octets * 8e-3 / seconds)
            stage.sample(stage.now(), "seconds", seconds)
            stage.finish()
        else:
            stage.problems.append(f"the transfer: {line.strip()}")
