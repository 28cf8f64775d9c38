# SPDX-License-Identifier: Apache-2.0
"""Address of the API."""

import socket

from accesspoint.controller.app import listen


def test_answers_wait_for_no_acknowledgement() -> None:
    # Nagle's algorithm would hold an answer's body back until the client's delayed ACK of its head, 40 ms later.
    with listen("127.0.0.1:0", tls=False) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
