# SPDX-License-Identifier: Apache-2.0
"""A client that sends without end and takes nothing, until it is killed: `flood_client.py ADDRESS`."""

import itertools
import os
import sys
import threading

import grpc
from finsy.proto import p4r, p4r_grpc

PACKET = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=bytes(1400)))
ARBITRATION = p4r.StreamMessageRequest(
    arbitration={"device_id": 1, "election_id": {"low": 1}, "role": {"name": "flood"}}
)
EVERYTHING = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
UNKNOWN = p4r.WriteRequest(
    device_id=1, role="flood", election_id={"low": 1}, updates=[p4r.Update(type="INSERT")] * 1000
)


def main(address: str) -> None:
    stub = p4r_grpc.P4RuntimeStub(grpc.insecure_channel(address))
    streams = [stub.StreamChannel(itertools.chain([ARBITRATION], itertools.repeat(PACKET))) for _ in range(3)]
    reads = [stub.Read(EVERYTHING) for _ in range(10)]

    def write() -> None:
        while True:
            try:
                stub.Write(UNKNOWN)
            except grpc.RpcError:
                os.write(1, b"refused\n")  # a line at once: three threads say it

    for _ in range(3):
        threading.Thread(target=write, daemon=True).start()
    threading.Event().wait()
    del streams, reads


if __name__ == "__main__":
    main(sys.argv[1])
