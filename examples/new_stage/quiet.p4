// SPDX-License-Identifier: Apache-2.0
// quiet: an example of a stage. What carries DSCP 42 goes no further.
#ifndef QUIET_P4
#define QUIET_P4

control Quiet(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.dscp == 42) {
            meta.drop = 1;
        }
    }
}

#endif
