#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The compiled program is committed, so that nobody needs p4c to use it; this keeps it true to its sources.
#   tools/goldens.sh renew    compile with the p4c on PATH; warnings are errors. With p4c-barefoot also for Tofino
#   tools/goldens.sh compile DIR    the same into another directory, for v1model
#   tools/goldens.sh tofino DIR     for Tofino, with the back end's reports
#   tools/goldens.sh check    the recorded sums of sources and goldens hold; with p4c on PATH also: a new compile is the same
set -euo pipefail
cd "$(dirname "$0")/.."

COMPILED=p4src/compiled
GOLDENS="$COMPILED/ap.json $COMPILED/ap.p4info.txtpb"
SUMS=$COMPILED/goldens.sha256
# Of the build for Tofino a controller needs the P4Info; the rest is made for one release of the vendor's software. It
# has no sums: few have that back end, and tests compare the P4Info with v1model's.
TOFINO_P4INFO=$COMPILED/ap_tna.p4info.txtpb
TOFINO_OUT=out/tofino
# The programs of the conformance suite and of the switch's tests, and the switch that is a link of a lab: renewed with the
# others, checked by their sums alone, as they take p4c longer.
OTHERS="checks/conformance/programs switch/testdata/programs topologies/links"
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

sources() { find p4src -name '*.p4' ! -path 'p4src/tna/*' | LC_ALL=C sort; }

p4c_version() { p4c-bm2-ss --version 2>&1 | sed -n 's/^Version \([^ ]*\).*/\1/p'; }

compile() { # into directory $1
    p4c-bm2-ss --std p4-16 --Werror -I p4src -o "$1/ap.json" --p4runtime-files "$1/ap.p4info.txtpb" p4src/v1model/ap.p4
    # The position of the compiler's own include files is the machine's business, not the program's.
    sed -i -E 's#"filename" : "/[^"]*/p4include/#"filename" : "#' "$1/ap.json"
}

compile_others() { # into their own folders, without the places in the source, which are most of a program
    for folder in $OTHERS; do
        strict=--Werror # but where programs do on purpose what p4c warns of
        [ "$folder" != switch/testdata/programs ] || strict=
        for source in "$folder"/*.p4; do
            grep -q 'V1Switch(' "$source" || continue # a file that others include
            name=${source%.p4}
            files=
            for form in txtpb bin; do # protobuf's own form is for tests in Rust
                [ ! -e "$name.p4info.$form" ] || files=$files,$name.p4info.$form
            done
            p4c-bm2-ss --std p4-16 $strict -o "$name.json" ${files:+--p4runtime-files "${files#,}"} "$source"
            python3 - "$name.json" <<'PYTHON'
import json, sys

def without_places(value):
    if isinstance(value, dict):
        return {key: without_places(one) for key, one in value.items() if key != "source_info"}
    return [without_places(one) for one in value] if isinstance(value, list) else value

with open(sys.argv[1]) as file:
    document = without_places(json.load(file))
with open(sys.argv[1], "w") as file:
    json.dump({**document, "program": sys.argv[1].rsplit("/", 1)[-1]}, file, separators=(",", ":"))
    file.write("\n")
PYTHON
        done
        # shellcheck disable=SC2046,SC2086 # words
        { echo "# p4c $(p4c_version)"; sha256sum $(others "$folder"); } >"$folder/goldens.sha256"
        echo "$folder compiled by p4c $(p4c_version)"
    done
}

others() { find "$1" -maxdepth 1 \( -name '*.p4' -o -name '*.json' -o -name '*.p4info.*' \) | LC_ALL=C sort; }

compile_tofino() { # into directory $1: assembly, reports, P4Info; with bfas on PATH also tofino.bin and context.json
    rm -rf "$1"
    mkdir -p "$1"
    cp p4src/tna/ap.p4 "$1/ap_tna.p4" # the back end names what it writes, and the program, by its source
    p4c-barefoot --target tofino --arch tna --std p4-16 -D__TARGET_TOFINO__=1 -g --p4runtime-force-std-externs \
        -I p4src --p4runtime-files "$1/ap_tna.p4info.txtpb" -o "$1" "$1/ap_tna.p4" >"$1/p4c.log" 2>&1 ||
        die "p4c-barefoot refuses p4src/tna/ap.p4 ($(grep -i -m 1 error "$1/p4c.log" || tail -n 1 "$1/p4c.log")); all it says: $1/p4c.log"
    if command -v bfas >/dev/null; then
        bfas --target tofino -o "$1/pipe" "$1/pipe/ap_tna.bfa" >"$1/bfas.log" 2>&1 ||
            die "bfas refuses what p4c-barefoot made of p4src/tna/ap.p4; all it says: $1/bfas.log"
    fi
}

need_p4c() {
    command -v p4c-bm2-ss >/dev/null || die "p4c-bm2-ss is not on PATH; install p4c (https://github.com/p4lang/p4c) and try again"
}

case "${1:-}" in
    renew)
        need_p4c
        compile $COMPILED
        # shellcheck disable=SC2046,SC2086 # words
        { echo "# p4c $(p4c_version)"; sha256sum $(sources) $GOLDENS; } >$SUMS
        echo "p4src compiled by p4c $(p4c_version)"
        compile_others
        if command -v p4c-barefoot >/dev/null; then
            compile_tofino $TOFINO_OUT
            cp $TOFINO_OUT/ap_tna.p4info.txtpb $TOFINO_P4INFO
            echo "p4src compiled for Tofino into $TOFINO_OUT"
            python3 tools/tofino.py $TOFINO_OUT
        else
            echo "p4src not compiled for Tofino: p4c-barefoot is not on PATH (p4c built with -DENABLE_TOFINO=ON)"
        fi
        ;;
    compile)
        need_p4c
        mkdir -p "${2:?"name a directory"}"
        compile "$2"
        ;;
    tofino)
        command -v p4c-barefoot >/dev/null || die "p4c-barefoot is not on PATH; build p4c with -DENABLE_TOFINO=ON and try again"
        compile_tofino "${2:?"name a directory"}"
        ;;
    check)
        sha256sum --quiet -c $SUMS || die "p4src and its goldens differ; renew them with: make p4"
        [ "$(sources | wc -l)" = "$(grep -c '\.p4$' $SUMS)" ] || die "p4src has new sources; renew the goldens with: make p4"
        for folder in $OTHERS; do
            sha256sum --quiet -c "$folder/goldens.sha256" || die "$folder and its goldens differ; renew them with: make p4"
            [ "$(others "$folder" | wc -l)" = "$(grep -vc '^#' "$folder/goldens.sha256")" ] ||
                die "$folder has new files; renew the goldens with: make p4"
        done
        # Another release of p4c may emit the same program otherwise: only the one that made the goldens must agree.
        if command -v p4c-bm2-ss >/dev/null && grep -qx "# p4c $(p4c_version)" $SUMS; then
            fresh=$(mktemp -d); trap 'rm -rf "$fresh"' EXIT
            compile "$fresh"
            for golden in $GOLDENS; do
                cmp -s "$golden" "$fresh/$(basename "$golden")" || die "$golden is not what p4c $(p4c_version) emits; renew it with: make p4"
            done
        fi
        ;;
    *) die "usage: tools/goldens.sh renew|check|compile DIR|tofino DIR" ;;
esac
