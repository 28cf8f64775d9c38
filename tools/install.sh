#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what a fresh Debian 12 lacks, and says what. Called by make; safe to call again, quick when nothing is missing.
#   tools/install.sh system    Debian packages that the lab and the builds need
#   tools/install.sh python    .venv with requirements.txt
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

# What is there when its package is (a command, or a file), then the package. clang, libelf and zlib build the BPF programs.
SYSTEM="mnexec:mininet iperf3:iperf3 ethtool:ethtool ip:iproute2 ping:iputils-ping curl:curl
    clang:clang pkg-config:pkg-config /usr/include/gelf.h:libelf-dev /usr/include/zlib.h:zlib1g-dev"

apt_install() {
    command -v apt-get >/dev/null || die "missing: $*; this system has no apt-get, install them by hand"
    local sudo=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "missing: $*; run make as root, or install them by hand"
        sudo=sudo
    fi
    say "apt-get install $*"
    # What is installed may be older than the package list knows: refresh it once, before the first install.
    $sudo apt-get -qq update
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install --no-install-recommends "$@" >/dev/null
}

install_system() {
    local missing=() pair
    for pair in $SYSTEM; do
        command -v "${pair%%:*}" >/dev/null || [ -f "${pair%%:*}" ] || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

install_python() {
    local python=${PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        die "Python 3.11 or newer is needed, $("$python" --version 2>&1) found; name another with PYTHON=..."
    if [ ! -x .venv/bin/pip ]; then
        say "creating .venv with $("$python" --version)"
        rm -rf .venv
        if ! "$python" -m venv .venv >/dev/null 2>&1; then
            apt_install python3-venv
            "$python" -m venv .venv
        fi
    fi
    if ! cat requirements.txt ptf-tests/requirements.txt | cmp -s - .venv/requirements.txt; then
        say "pip install -r requirements.txt (into .venv)"
        .venv/bin/pip install -q --disable-pip-version-check -r requirements.txt
        # ptf asks for packages that it does not use; one of them needs a compiler and Python's headers.
        .venv/bin/pip install -q --disable-pip-version-check --no-deps -r ptf-tests/requirements.txt
        cat requirements.txt ptf-tests/requirements.txt >.venv/requirements.txt
    fi
}

case "${1:-}" in
    system) install_system ;;
    python) install_python ;;
    *) die "usage: tools/install.sh system|python" ;;
esac
