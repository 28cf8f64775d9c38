// SPDX-License-Identifier: Apache-2.0
// window_scale: the window scale that a host announces in a connection (RFC 7323, 2). Only its SYN has it, when
// the flow has no index yet: the cell is one of the addresses' and ports' hash.
//
//   SYN, SYN-ACK -> window_scale[hash] = the rest of the hash ++ its own window, which is not shifted ++ shift count
//
// A cell that another connection has written since, a SYN that nobody saw, or whose options are laid out otherwise than hosts do: no
// shift, so the window is taken for smaller than it is.
#ifndef V1MODEL_WINDOW_SCALE_P4
#define V1MODEL_WINDOW_SCALE_P4

@id(REGISTER_WINDOW_SCALE)
register<bit<36>>(SCALES_SIZE) window_scale;

// NOP, kind 3, length 3: a word's beginning in the SYNs of Linux, BSD, Windows and Darwin, behind which is the count.
#define IS_WINDOW_SCALE(word) (word[31:8] == 0x010303)

// The hash of addresses and ports. `back`: of the other direction's.
control ConnectionHash(in headers_t hdr, in metadata_t meta, in bool back, out bit<32> value) {
    apply {
        value = 0;
        if (hdr.ipv4.isValid()) {
            if (back) {
                hash(value, HashAlgorithm.crc32, 32w0, { hdr.ipv4.dst_addr, hdr.ipv4.src_addr, meta.dst_port, meta.src_port },
                    64w1 << 32);
            } else {
                hash(value, HashAlgorithm.crc32, 32w0, { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.src_port, meta.dst_port },
                    64w1 << 32);
            }
        } else if (hdr.ipv6.isValid()) {
            if (back) {
                hash(value, HashAlgorithm.crc32, 32w0, { hdr.ipv6.dst_addr, hdr.ipv6.src_addr, meta.dst_port, meta.src_port },
                    64w1 << 32);
            } else {
                hash(value, HashAlgorithm.crc32, 32w0, { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.src_port, meta.dst_port },
                    64w1 << 32);
            }
        }
    }
}

control WindowScale(in headers_t hdr, in metadata_t meta) {
    ConnectionHash() connection_hash;
    ConnectionHash() hash_back;

    apply {
        if (meta.boundary == 1 && (hdr.tcp.flags & TCP_SYN) != 0) {
            bit<32> at;
            bit<1> scaled = 1;
            bit<4> shift = 0;
            if (hdr.syn_options.isValid() && IS_WINDOW_SCALE(hdr.syn_options.second)) {
                shift = hdr.syn_options.second[3:0];
            } else if (hdr.syn_option.isValid() && IS_WINDOW_SCALE(hdr.syn_option.third)) {
                shift = hdr.syn_option.third[3:0];
            } else if (hdr.syn_options_end.isValid() && IS_WINDOW_SCALE(hdr.syn_options_end.fifth)) {
                shift = hdr.syn_options_end.fifth[3:0];
            } else {
                scaled = 0;
            }
            connection_hash.apply(hdr, meta, false, at);
            window_scale.write((bit<32>)at[15:0], at[31:16] ++ hdr.tcp.window ++ shift);
            // Both ends say so, or neither does it.
            if (scaled == 0 && (hdr.tcp.flags & TCP_ACK) != 0) {
                hash_back.apply(hdr, meta, true, at);
                bit<36> scale;
                window_scale.read(scale, (bit<32>)at[15:0]);
                if (scale[35:20] == at[31:16]) {
                    window_scale.write((bit<32>)at[15:0], scale[35:4] ++ 4w0);
                }
            }
        }
    }
}

#endif
