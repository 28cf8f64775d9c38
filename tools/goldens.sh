#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The compiled program is committed, so that nobody needs p4c to use it; this keeps it true to its sources.
#   tools/goldens.sh renew    compile with the p4c on PATH; warnings are errors
#   tools/goldens.sh compile DIR    the same into another directory
#   tools/goldens.sh check    the recorded sums of sources and goldens hold; with p4c on PATH also: a new compile is the same
set -euo pipefail
cd "$(dirname "$0")/.."

GOLDENS="p4src/ap.json p4src/ap.p4info.txtpb"
SUMS=p4src/goldens.sha256
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

p4c_version() { p4c-bm2-ss --version 2>&1 | sed -n 's/^Version \([^ ]*\).*/\1/p'; }

compile() { # into directory $1
    p4c-bm2-ss --std p4-16 --Werror -o "$1/ap.json" --p4runtime-files "$1/ap.p4info.txtpb" p4src/ap.p4
    # The position of the compiler's own include files is the machine's business, not the program's.
    sed -i -E 's#"filename" : "/[^"]*/p4include/#"filename" : "#' "$1/ap.json"
}

need_p4c() {
    command -v p4c-bm2-ss >/dev/null || die "p4c-bm2-ss is not on PATH; install p4c (https://github.com/p4lang/p4c) and try again"
}

case "${1:-}" in
    renew)
        need_p4c
        compile p4src
        { echo "# p4c $(p4c_version)"; sha256sum $(find p4src -name '*.p4' | LC_ALL=C sort) $GOLDENS; } >$SUMS
        echo "p4src compiled by p4c $(p4c_version)"
        ;;
    compile)
        need_p4c
        mkdir -p "${2:?"name a directory"}"
        compile "$2"
        ;;
    check)
        sha256sum --quiet -c $SUMS || die "p4src and its goldens differ; renew them with: make p4"
        [ "$(find p4src -name '*.p4' | wc -l)" = "$(grep -c '\.p4$' $SUMS)" ] || die "p4src has new sources; renew the goldens with: make p4"
        # Another release of p4c may emit the same program otherwise: only the one that made the goldens must agree.
        if command -v p4c-bm2-ss >/dev/null && grep -qx "# p4c $(p4c_version)" $SUMS; then
            fresh=$(mktemp -d); trap 'rm -rf "$fresh"' EXIT
            compile "$fresh"
            for golden in $GOLDENS; do
                cmp -s "$golden" "$fresh/${golden#p4src/}" || die "$golden is not what p4c $(p4c_version) emits; renew it with: make p4"
            done
        fi
        ;;
    *) die "usage: tools/goldens.sh renew|check|compile DIR" ;;
esac
