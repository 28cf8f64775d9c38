# SPDX-License-Identifier: Apache-2.0
"""`apswitch` with any P4 program for Mininet scripts of one's own."""

import inspect
import json as json_
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mininet.log import error

from accesspoint.topologies import requirements
from accesspoint.topologies.links.mininet_words import link_model
from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.mininet.nodes import ApSwitch, PortClaims, run_prefix
from accesspoint.topologies.namespaces.contain import end_with_parent, stop_process
from accesspoint.topologies.namespaces.scratch import ScratchFolder
from accesspoint.topologies.processes import last_lines
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.targets import CPU_PORT, Wiring

GRPC_PORT, THRIFT_PORT = 9559, 9090
SHOWN_LINES = 5
MININET_WORDS = {"cls", "defaultRoute", "dpid", "inNamespace", "ip", "isSwitch", "listenPort", "lo", "mac", "name"}
MININET_WORDS |= {"opts", "privateDirs", "waitExited"}


class P4Switch(ApSwitch):
    """`net.addSwitch("s1", cls=P4Switch, json="basic.json")`: `apswitch` as a Mininet switch.

    Links keep Mininet's words, `bw`, `delay`, `jitter`, `loss` and `max_queue_size`: the switch's port has them as its
    link model, and its queue is the switch's. `opts` are more options of `apswitch`. With `inNamespace=True` the switch
    is in a network namespace, and so is P4Runtime.

    Args:
        name: in Mininet; it ends in a number. P4Runtime's device id is 1 unless `device_id` says otherwise.
        json: the program, BMv2 JSON as p4c makes it; None: a controller brings it.
        p4info: the program's P4Info, text: the switch gets both over P4Runtime when it starts, so that a client may
            write entries at once.
        switch_config: a file of BMv2's runtime commands (`table_add`, ...), as Mininet-WiFi's switches take it; see
            accesspoint.topologies.bmv2_commands.
        cpu_port: number of the port of packet-in and packet-out.
        grpc_port: TCP port of P4Runtime and gNMI on 127.0.0.1; None: 9559, or any other that is free.
        pcap: a folder that takes what each port carries.
        trace: a file that takes every packet's path as a line of JSON (`apswitch trace --json`), as far as its rate
            allows; True: NAME.trace.json in `directory`. It needs `json`.
        log_level: trace, debug, info, warn, error or off; None: info.
        directory: takes the log; None: a temporary folder, which goes when the switch stops.
    """

    any_words = False
    """Take words that neither the class nor Mininet knows."""

    def __init__(
        self,
        name: str,
        json: Path | str | None = None,
        p4info: Path | str | None = None,
        switch_config: Path | str | None = None,
        cpu_port: int = CPU_PORT,
        grpc_port: int | None = None,
        pcap: Path | str | None = None,
        trace: Path | str | bool | None = None,
        log_level: str | None = None,
        directory: Path | str | None = None,
        **params: Any,
    ) -> None:
        requirements.check_machine()
        self.target.require()
        if not self.any_words:
            self._check_words(name, params)
        self.json, self.p4info = _file(name, "json", json), _file(name, "p4info", p4info)
        self.pcap = Path(pcap).resolve() if pcap else None
        self.switch_config = _file(name, "switch_config", switch_config)
        if (self.p4info or self.switch_config or trace) and not self.json:
            raise LabError(f"{name}: p4info=, switch_config= and trace= need the program: give json=, too")
        self.cpu_port = cpu_port
        self.log_level = log_level
        self._scratch = None if directory else ScratchFolder(f"{name}-")
        self.directory = self._scratch.path if self._scratch else Path(str(directory))
        given = self.directory / f"{name}.trace.json" if trace is True else trace
        self.trace = Path(given).resolve() if given else None
        self._tracer: subprocess.Popen[bytes] | None = None
        self._detached: set[Any] = set()
        self._claims = PortClaims()
        use = f"{name}: grpc_port"
        port = self._claims.take(grpc_port, use) if grpc_port else self._claims.claim(GRPC_PORT)
        own: dict[str, Any] = {
            "prefix": run_prefix(),
            "directory": self.directory,
            "grpc": f"127.0.0.1:{port}",
            "thrift": self._claims.claim(THRIFT_PORT),
        }
        super().__init__(name, **own | params)

    @property
    def wired(self) -> dict[int, Any]:
        return {port: intf for port, intf in super().wired.items() if intf not in self._detached}

    def wiring(self) -> Wiring:
        return replace(
            super().wiring(), program=self.json, pcap=self.pcap, log_level=self.log_level, cpu_port=self.cpu_port
        )

    def start(self, controllers: list[Any]) -> None:
        """Starts the switch and returns once it runs. Mininet's controllers have no part in it. Raises LabError."""
        for folder in filter(None, (self.directory, self.pcap, self.trace and self.trace.parent)):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            super().start(controllers)
            if self.trace:
                self._start_trace(self.trace)
            if self.p4info or self.switch_config:
                options = ["--p4info", str(self.p4info)] if self.p4info else []
                options += ["--commands", str(self.switch_config)] if self.switch_config else []
                self.client("load", str(self.device_id), str(self.json), *options)
        except BaseException:
            self.stop(deleteIntfs=False)
            raise
        threading.Thread(target=self._watch, args=[self.process], daemon=True).start()

    def prepare(self, port: int, intf: Any) -> None:
        """Make an interface and that of the host behind it fit for single packets. A queue discipline that Mininet's
        words have brought goes, as the port has their link model; the switch looks after another one. Raises
        LabError."""
        super().prepare(port, intf)
        if port not in self.radios and link_model(intf.params):
            self.pexec(["tc", "qdisc", "delete", "dev", intf.name, "root"])  # fails where there is none
        end = self.other_end(intf)
        if end and not isinstance(end.node, ApSwitch):
            # Mininet's hosts leave checksums and segments to their interfaces, and a veth does neither.
            end.node.pexec(["ethtool", "-K", end.name, *OFFLOADS])

    def attach(self, intf: Any) -> None:
        """Make the interface of a link that came after the start a port, with the link's model. intf: Mininet's
        interface, or its name. Raises LabError."""
        intf = self.intf(intf)
        self._detached.discard(intf)
        port = self.port_of(intf)
        model = self.model(port)
        if self.process:
            if "trace" in model:
                raise LabError(f"{self.name}: a link with a trace has to be there when the switch starts")
            self.prepare(port, intf)
            self.client("add", intf.name, str(port), json_.dumps(model))

    def detach(self, intf: Any) -> None:
        """Make an interface no port any more; the link stays. Raises LabError."""
        intf = self.intf(intf)
        if self.process:
            self.client("remove", intf.name)
        self._detached.add(intf)

    def _start_trace(self, file: Path) -> None:
        """Trace to a file; returns once it does. Raises LabError."""
        with file.open("wb") as out:
            self._tracer = subprocess.Popen(
                self.inside(self.target.binary(), "trace", "--address", self.grpc, "--json"),
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, start_new_session=True,
                preexec_fn=end_with_parent,
            )  # fmt: skip
        assert self._tracer.stderr
        line = self._tracer.stderr.readline().decode().strip()
        if not line.startswith("tracing "):
            raise LabError(f"{self.name}: trace: {line.removeprefix('apswitch trace: ')}")

    def stop(self, deleteIntfs: bool = True) -> None:
        if self._tracer:
            tracer, self._tracer = self._tracer, None
            stop_process(tracer)
        super().stop(deleteIntfs)
        if deleteIntfs:  # else it may start again
            self._claims.release()
            if self._scratch:
                self._scratch.close()

    def port_of(self, intf: Any) -> int:
        return next(port for port, known in self.wired.items() if known is intf)

    @staticmethod
    def other_end(intf: Any) -> Any:
        """Return the interface at the other end of an interface's link; None where it is no wire."""
        ends = (getattr(intf.link, "intf1", None), getattr(intf.link, "intf2", None))
        return next((end for end in ends if end is not None and end is not intf), None) if intf in ends else None

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Report the end of the switch, unless it was stopped."""
        code = process.wait()
        if self.process is process:
            lines = last_lines(self.log, SHOWN_LINES) + last_lines(self.log.with_suffix(".out"), SHOWN_LINES)
            error(f"\n*** {self.name}: the switch ended with code {code}; its log ends:\n{lines}")

    def _check_words(self, name: str, params: Mapping[str, Any]) -> None:
        """Raises LabError for a word that neither the class nor Mininet knows."""
        classes = [cls for cls in type(self).__mro__ if issubclass(cls, ApSwitch)]
        own = dict.fromkeys(word for cls in classes for word in inspect.signature(cls.__init__).parameters)
        known = [word for word in own if word not in ("self", "name", "params", "prefix", "grpc", "thrift")]
        if unknown := [word for word in params if word not in (*known, *MININET_WORDS)]:
            raise LabError(f"{name}: '{unknown[0]}' is unknown of {type(self).__name__}: choose of {', '.join(known)}")


def _file(name: str, word: str, path: Path | str | None) -> Path | None:
    if path is None:
        return None
    if not Path(path).is_file():
        raise LabError(f"{name}: {word}={path} is no file: compile the program with p4c-bm2-ss")
    return Path(path).resolve()
