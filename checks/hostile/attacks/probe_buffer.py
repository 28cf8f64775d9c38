# SPDX-License-Identifier: Apache-2.0
"""`hosts probe-buffer serve`: connections, wrong proofs and floods of datagrams."""

import socket

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import exchange, idle, mutate, pour


@attack("probe-buffer")
def probe_silence(target: Target) -> None:
    """200 connections that say nothing"""
    idle(target, 200, every=0.05)


@attack("probe-buffer")
def probe_slow_lines(target: Target) -> None:
    """200 connections that say a line byte by byte"""
    idle(target, 200, begin=b'{"nonce":"', drip=b"x", every=0.1)


@attack("probe-buffer")
def probe_lines_without_end(target: Target) -> None:
    """Lines that never end"""
    pour(target, b'{"nonce":"', b"x" * 65536, connections=8, reads=False)


@attack("probe-buffer")
def probe_wrong_proofs(target: Target) -> None:
    """Wrong proofs, as fast as they are taken"""
    line = b'{"nonce":"' + b"0" * 32 + b'","proof":"' + b"0" * 64 + b'"}\n'
    exchange(target, (line for _ in range(1 << 30)))


@attack("probe-buffer", short=True)
def probe_datagrams(target: Target) -> None:
    """Datagrams of strangers without end, at the port where trials are recorded"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(target.host_port)
        while target.running():
            for _ in range(256):
                try:
                    sender.send(target.random.randbytes(24))
                except OSError:
                    target.refused("unreachable")


@attack("probe-buffer")
def probe_mutations(target: Target) -> None:
    """Random mutations of valid lines"""
    valid = b'{"nonce":"' + b"0" * 32 + b'","proof":"' + b"0" * 64 + b'"}\n{"begin":1}\n{"end":{"quiet":10}}\n'
    exchange(target, (mutate(valid, target.random) for _ in range(1 << 30)), 0.01)
