#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Called by cargo in the place of the compiler: gives the switch, and nothing that it uses, the counters of libFuzzer.
rustc=$1
shift
case " $* " in
    *" --crate-name apswitch "*)
        exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
            -Cllvm-args=-sanitizer-coverage-trace-compares
        ;;
    *) exec "$rustc" "$@" ;;
esac
