# SPDX-License-Identifier: Apache-2.0
"""The peer that BATCP is measured against: octets over one kernel socket, TCP or MPTCP.

python stream.py receive PORT PROTOCOL
python stream.py send ADDRESS PORT PROTOCOL OCTETS     prints the seconds from the first SYN to the receiver's word
"""

import socket
import sys
import time

BLOCK = bytes(1 << 18)


def receive(port: int, protocol: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", port))
        listener.listen()
        print("listening", flush=True)
        connection, _ = listener.accept()
        with connection:
            buffer = bytearray(len(BLOCK))
            got = 0
            while length := connection.recv_into(buffer):
                got += length
            connection.sendall(got.to_bytes(8, "big"))


def send(address: str, port: int, protocol: int, octets: int) -> None:
    started = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as connection:
        connection.connect((address, port))
        for at in range(0, octets, len(BLOCK)):
            connection.sendall(BLOCK[: octets - at])
        connection.shutdown(socket.SHUT_WR)
        word = connection.recv(8, socket.MSG_WAITALL)
    if int.from_bytes(word, "big") != octets:
        sys.exit(f"error: {int.from_bytes(word, 'big')} of {octets} octets arrived")
    print(time.monotonic() - started)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]), int(sys.argv[3]))
    else:
        send(sys.argv[2], *(int(word) for word in sys.argv[3:6]))
