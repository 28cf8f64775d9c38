# SPDX-License-Identifier: Apache-2.0
"""What `make bench` offers is what it says."""

import contextlib
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from bench.lab import Lab
from bench.program import write_frames
from bench.switching import INJECTOR
from topologies.requirements import LabError

FLOWS = 5
RATE = 5000.0  # packets/s, few enough for the socket's buffer to hold them all
BATCH = 64
ETH_P_ALL = 3
PACKET_IGNORE_OUTGOING = 23

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and BPF need root")


def test_injected_frames_are_received_as_counted(tmp_path: Path) -> None:
    file = tmp_path / "frames.pcap"
    write_frames(file, FLOWS, 60)
    frames = [frame for frame, _ in RawPcapReader(str(file))]
    with Lab() as lab:
        with lab.entered():
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with port:
            port.setsockopt(263, PACKET_IGNORE_OUTGOING, 1)  # SOL_PACKET
            port.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            port.bind(("left", ETH_P_ALL))
            port.setblocking(False)
            report = json.loads(lab.run(*INJECTOR, file, "--rate", str(RATE), "--seconds", "0.3"))
            received = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    received.append(port.recv(2048))
    assert report["packets"] == len(received) > 0
    assert report["packets"] <= RATE * report["seconds"] + BATCH
    assert received == [frames[number % FLOWS] for number in range(len(received))]


def test_injecting_into_no_interface_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "frames.pcap"
    write_frames(file, 1, 60)
    with Lab() as lab, pytest.raises(LabError, match=r"failed: error: nobody: no interface with this name$"):
        lab.run(sys.executable, "-m", "bench.inject", "nobody", file)
