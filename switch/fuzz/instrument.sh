#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Called by cargo in the place of the compiler: gives the switch and its reference, and nothing that they use, the
# counters of libFuzzer, and them and the targets AddressSanitizer, which is none of the stable compiler's promises: RUSTC_BOOTSTRAP.
rustc=$1
shift
case " $* " in
    *" --crate-name apswitch_core "* | *" --crate-name apswitch_dataplane "* | *" --crate-name apswitch_p4runtime "* | \
        *" --crate-name apswitch_reference "*)
        RUSTC_BOOTSTRAP=1 exec "$rustc" "$@" -Zsanitizer=address -Cpasses=sancov-module \
            -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-trace-compares
        ;;
    *" --crate-type bin "*"/fuzz_targets/"* | *"fuzz_targets/"*" --crate-type bin "*)
        RUSTC_BOOTSTRAP=1 exec "$rustc" "$@" -Zsanitizer=address
        ;;
    *) exec "$rustc" "$@" ;;
esac
