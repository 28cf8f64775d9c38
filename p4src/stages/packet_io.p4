// SPDX-License-Identifier: Apache-2.0
// packet_io: packets between the controller and the wire.
//
//   packet-out: the controller names the egress port; no stage touches the packet
//   packet-in:  `punt` sends a packet, or a copy of it, to the controller, with the port it came from
//
// No architecture extern.
#ifndef PACKET_IO_P4
#define PACKET_IO_P4

control PacketOut(inout headers_t hdr, out port_t egress_port) {
    apply {
        egress_port = hdr.packet_out.egress_port;
        hdr.packet_out.setInvalid();
    }
}

control Punt(in headers_t hdr, inout metadata_t meta) {
    // When the controller answers for the network (its own addresses).
    @id(ACTION_SEND_TO_CPU)
    action send_to_cpu() {
        meta.to_cpu = 1;
    }

    // When the controller only wants to see.
    @id(ACTION_COPY_TO_CPU)
    action copy_to_cpu() {
        meta.copy_to_cpu = 1;
    }

    @id(TABLE_PUNT)
    @entry_restriction("dst_port::mask == 0 || (protocol::mask == 255 && (protocol::value == 6 || protocol::value == 17))")
    table punt {
        key = {
            meta.ingress_port: ternary @id(1) @name("ingress_port");
            hdr.ethernet.dst_addr: ternary @id(2) @name("dst_addr") @format(MAC_ADDRESS);
            hdr.ethernet.ether_type: ternary @id(3) @name("ether_type");
            meta.protocol: ternary @id(4) @name("protocol");
            meta.dst_port: ternary @id(5) @name("dst_port");
        }
        actions = { send_to_cpu; copy_to_cpu; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PUNT_SIZE;
    }

    apply {
        punt.apply();
    }
}

control PacketIn(inout headers_t hdr, in metadata_t meta) {
    apply {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = meta.ingress_port;
        hdr.packet_in.pad = 0;
    }
}

#endif
