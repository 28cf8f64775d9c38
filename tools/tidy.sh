#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (.clang-tidy says which checks) over the C and C++ whose headers are installed; names what it skips.
set -euo pipefail
cd "$(dirname "$0")/.."

# Check the files on stdin, compiled with the given flags.
tidy() {
    xargs -P "$(nproc)" -I '{}' .venv/bin/clang-tidy --quiet '{}' -- "$@"
}

git ls-files 'hosts/algorithms/*.c' | tidy

# libbpf's headers come with its crate.
libbpf=$(find target/release/build -path '*/libbpf-sys-*/out/include' -prune -print -quit 2>/dev/null || true)
if [ -n "$libbpf" ]; then
    git ls-files 'hosts/*.bpf.c' | tidy -target bpf -D__TARGET_ARCH_x86 -Ihosts/bpf -isystem "$libbpf"
    # inject.py and cc_lab.py define the numbers.
    git ls-files 'checks/*.bpf.c' | tidy -target bpf -D__TARGET_ARCH_x86 -DFRAMES=1024 -DFRAME_BYTES=64 -DBATCH=64 -DSHARE=1024 \
        -isystem "$libbpf" -isystem "/usr/include/$(uname -m)-linux-gnu"
else
    echo "clang-tidy skips *.bpf.c: libbpf's headers are missing, \`make switch\` unpacks them"
fi

ns3=$(.venv/bin/python -c 'import importlib.util as u; s = u.find_spec("ns3"); print(*(s.submodule_search_locations if s else ()))')
if [ -n "$ns3" ]; then
    git ls-files 'hosts/ns3/*.cc' 'topologies/ns3/*.cc' |
        tidy -std=c++20 -isystem "$ns3/include" -Itopologies/ns3 -Itopologies/ns3/cells -Ihosts/ns3 -Iswitch/c
else
    echo "clang-tidy skips hosts/ns3 and topologies/ns3: ns-3 is missing, \`make ns3\` installs it"
fi
