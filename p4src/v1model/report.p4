// SPDX-License-Identifier: Apache-2.0
// report: what the stages want the controller to know -> digest.
#ifndef V1MODEL_REPORT_P4
#define V1MODEL_REPORT_P4

control Report(in headers_t hdr, in metadata_t meta) {
    apply {
        if (meta.report == REPORT_SOURCE) {
            digest<source_digest_t>(1, { hdr.ethernet.src_addr, meta.ingress_port, meta.outer_vid,
                meta.inner_vid });
        } else if (meta.report == REPORT_FLOW_IPV4) {
            digest<flow_ipv4_digest_t>(1, { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol,
                meta.src_port, meta.dst_port, meta.ingress_port, meta.egress_port, meta.outer_vid, meta.inner_vid });
        } else if (meta.report == REPORT_FLOW_IPV6) {
            digest<flow_ipv6_digest_t>(1, { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.protocol,
                meta.src_port, meta.dst_port, meta.ingress_port, meta.egress_port, meta.outer_vid, meta.inner_vid });
        }
    }
}

#endif
