# SPDX-License-Identifier: Apache-2.0
"""Somebody on the way: `python -m accesspoint.checks.hostile.middle PORT TO SEED` relays TCP to 127.0.0.1:TO, and
draws a fault for each connection: what crosses is changed, held back, repeated, cut off, or answered in TO's place.

Prints a line for each connection: the fault, and whether the words of `WORDS` crossed in clear.
"""

import contextlib
import random
import secrets
import socket
import struct
import sys
import threading
import time

from accesspoint.checks.hostile import batcp

WORDS = b"WORDS-OF-THE-USER"
FAULTS = ("none", "flip", "cut", "drop", "insert", "hold", "replay", "older", "pretend")
HANDSHAKE = 400  # octets, within which most faults happen
HOLD = 4.0  # s
earlier: list[bytes] = []  # what openers of earlier connections have sent first


def changed(fault: str, octets: bytes, at: int, dice: random.Random) -> bytes:
    """Return a piece of the stream as it is passed on; `at`: where in it the fault is."""
    if not 0 <= at < len(octets):
        return octets
    if fault == "flip":
        return octets[:at] + bytes([octets[at] ^ 1 << dice.randrange(8)]) + octets[at + 1 :]
    if fault == "drop":
        return octets[:at] + octets[at + dice.randrange(1, 64) :]
    if fault == "insert":
        return octets[:at] + dice.randbytes(dice.randrange(1, 64)) + octets[at:]
    return octets


def pass_on(here: socket.socket, there: socket.socket, fault: str, dice: random.Random, said: list[bool]) -> None:
    """Relay one direction, with its fault at a drawn octet."""
    at, passed, last = dice.randrange(HANDSHAKE), 0, b""
    with contextlib.suppress(OSError):
        while octets := here.recv(65536):
            said.append(WORDS in last + octets)
            last = octets[-len(WORDS) :]
            piece = changed(fault, octets, at - passed, dice)
            if passed <= at < passed + len(octets):
                if fault == "cut":
                    here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                if fault == "hold":
                    time.sleep(HOLD)
            passed += len(octets)
            there.sendall(piece)
    for end in (here, there):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def pretend(here: socket.socket, said: list[bool]) -> None:
    """Answer as an open listener would, who needs no key, and take what comes."""
    hello = batcp.took(here, batcp.HELLO)
    nonce = secrets.token_bytes(16)
    answer = batcp.MAGIC + struct.pack(">QQQ", 1, 7, batcp.WINDOW) + nonce
    keys = batcp.derived(b"", hello[32:48], nonce)
    here.sendall(answer + batcp.code(keys, b"welcome", hello + answer))
    here.settimeout(HOLD)
    while octets := here.recv(65536):
        said.append(WORDS in octets)


def serve(here: socket.socket, to: int, seed: int) -> None:
    dice, said = random.Random(seed), list[bool]()
    fault = dice.choice(FAULTS)
    with contextlib.suppress(OSError), here, socket.create_connection(("127.0.0.1", to)) as there:
        if fault == "pretend":
            pretend(here, said)
        else:
            first = batcp.took(here, batcp.HELLO)
            earlier.append(first)
            if fault == "older":
                first = batcp.MAGIC[:-1] + b"\x02" + first[len(batcp.MAGIC) :]
            there.sendall(dice.choice(earlier) if fault == "replay" else first)
            faults = (fault, "none") if dice.random() < 0.5 else ("none", fault)
            back = threading.Thread(target=pass_on, args=(there, here, faults[1], dice, said), daemon=True)
            back.start()
            pass_on(here, there, faults[0], dice, said)
            back.join()
    sys.stdout.write(f"{fault} {int(any(said))}\n")  # at once, as others write, too
    sys.stdout.flush()


def main() -> None:
    port, to, seed = map(int, sys.argv[1:])
    listening = socket.create_server(("", port), backlog=256)
    print("up", flush=True)
    while True:
        here, _ = listening.accept()
        seed += 1
        threading.Thread(target=serve, args=(here, to, seed), daemon=True).start()


if __name__ == "__main__":
    main()
