#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes with coverage of the switch's own code and AddressSanitizer, on the stable compiler:
#   switch/fuzz/run.sh loader|packets|programs|write [libFuzzer's options, such as -max_total_time=900]
# Inputs gather in out/fuzz/TARGET, beside those of switch/testdata/corpus/TARGET; what fails is written to out/fuzz/.
set -euo pipefail
cd "$(dirname "$0")"

target=${1:?"name a target: loader, packets, programs or write"}
shift
out=$(realpath ../..)/out/fuzz
mkdir -p "$out/$target" "../testdata/corpus/$target"
RUSTC_WRAPPER=$PWD/instrument.sh cargo build --profile fuzz --package apswitch-fuzz --bin "$target"
# What the targets keep from input to input is no leak.
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
exec ../../target/fuzz/"$target" "$out/$target" "../testdata/corpus/$target" -artifact_prefix="$out/" -timeout=60 -rss_limit_mb=4096 "$@"
