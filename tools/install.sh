#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what a fresh Debian 12 or 13 lacks, and says what. Called by make; safe to call again, quick when nothing is missing.
#   tools/install.sh system    Debian packages that the lab needs
#   tools/install.sh bpf       Debian packages that build the end hosts' BPF programs
#   tools/install.sh tests     Debian packages that tests run against; where they cannot be had, those tests say so
#   tools/install.sh fleet     the engine of a fleet, which is started by `make fleet` alone
#   tools/install.sh packages  Debian packages that `make dist` makes packages with
#   tools/install.sh python    .venv with requirements.txt
#   tools/install.sh develop   the same with requirements-dev.txt: what tests, checks and pages need
#   tools/install.sh switch    apswitch: built, or out of WHEEL, or the one that APSWITCH names
#   tools/install.sh ns3       ns-3's wheel into .venv, and our C++ compiled against it
#   tools/install.sh foreign   clients of other projects from PyPI, into an environment of their own
#   tools/install.sh wifi-kernel  what tools/wifi-kernel.sh builds from, and the wireless lab's Debian packages
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

# What is there when its package is (a command, or a file), then the package.
SYSTEM="mnexec:mininet iperf3:iperf3 ethtool:ethtool ip:iproute2 ping:iputils-ping curl:curl sysctl:procps"

BPF="clang:clang pkg-config:pkg-config /usr/include/gelf.h:libelf-dev /usr/include/zlib.h:zlib1g-dev"

PACKAGES="help2man:help2man dpkg-deb:dpkg debootstrap:debootstrap"

TESTS="pg_ctlcluster:postgresql promtool:prometheus chromium:chromium chromedriver:chromium-driver
    systemd-analyze:systemd faketime:faketime ns:ns2 /usr/sbin/nats-server:nats-server"

FLEET="/usr/sbin/nats-server:nats-server"

KERNEL="flex:flex bison:bison bc:bc gcc:gcc make:make xz:xz-utils depmod:kmod wg:wireguard-tools
    hostapd:hostapd wpa_supplicant:wpasupplicant iw:iw iwconfig:wireless-tools rfkill:rfkill"

# One at a time: make runs parts side by side, and apt-get does not wait for the lock of another one.
apt_install() { (flock 9; apt_install_alone "$@") 9<tools/install.sh; }

apt_install_alone() {
    command -v apt-get >/dev/null || die "missing: $*; this system has no apt-get, install them by hand"
    local sudo=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "missing: $*; run make as root, or install them by hand"
        sudo=sudo
    fi
    say "apt-get update, before anything is installed: the list of packages may be older than they are"
    $sudo apt-get -qq update
    local all
    all=$($sudo apt-get -s install --no-install-recommends "$@" | sed -n 's/^Inst \([^ ]*\).*/\1/p')
    say "apt-get will install for this project: $*"
    # shellcheck disable=SC2086 # words
    printf 'with what they need, %d packages: %s\n' "$(wc -w <<<"$all")" "${all//$'\n'/ }"
    PACKAGES=$(wc -w <<<"$all") tools/progress.py apt "apt-get" -- $sudo env DEBIAN_FRONTEND=noninteractive \
        tools/without-services.sh apt-get -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"
}

# What is missing of its words, each as in SYSTEM.
install_missing() {
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || [ -f "${pair%%:*}" ] || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

# Without what it depends on: Python bindings that nothing here uses, and that take minutes to compile.
NS3=3.44.post0

install_ns3() {
    command -v "${CXX:-g++}" >/dev/null || apt_install g++
    if ! .venv/bin/python -c 'import sys, importlib.metadata as m; sys.exit(m.version("ns3") != sys.argv[1])' "$NS3" 2>/dev/null; then
        say "pip install ns3==$NS3 (into .venv, 300 MB)"
        .venv/bin/pip install -q --disable-pip-version-check --no-deps "ns3==$NS3"
    fi
    if [ ! -f target/release/libapswitch_c.so ]; then
        die "the switch's library is missing: build it with \`make switch\`"
    fi
    .venv/bin/python -m accesspoint.topologies.ns3.build
}

# A database and a Prometheus are wanted as programs: what their packages would start and listen on stays off.
install_tests() {
    # shellcheck disable=SC2086 # words
    (install_missing $TESTS) || say "some of these are missing; the tests that need them will say so"
}

install_wifi_kernel() {
    # shellcheck disable=SC2086 # words
    install_missing $KERNEL
    ls /usr/src/linux-source-*.tar.xz >/dev/null 2>&1 || apt_install linux-source
}

need_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        die "Python 3.11 or newer is needed, $("$1" --version 2>&1) found; name another with PYTHON=..."
}

install_python() {
    local python=${PYTHON:-python3}
    need_python "$python"
    if [ ! -x .venv/bin/pip ]; then
        say "creating .venv with $("$python" --version)"
        rm -rf .venv
        if ! "$python" -m venv .venv >/dev/null 2>&1; then
            apt_install python3-venv
            "$python" -m venv .venv
        fi
    fi
    install_requirements requirements.txt
    # `accesspoint` is found from any folder, after whatever lies beside a user's script, and no other folder of the
    # checkout: a package in sys.path precedes a user's folder of this name that has no __init__.py.
    mkdir -p .venv/import
    ln -sfn ../../accesspoint .venv/import/accesspoint
    .venv/bin/python -c 'import os, sysconfig
open(sysconfig.get_path("purelib") + "/access-point.pth", "w").write(os.getcwd() + "/.venv/import\n")'
}

# Both lists have stamps: what was installed last stands in .venv.
install_requirements() {
    local wanted
    wanted=$(sed '/^-r /d' "$@")
    [ "$wanted" != "$(cat ".venv/$1" 2>/dev/null)" ] || return 0
    say "pip install -r $1 (into .venv)"
    tools/progress.py pip "pip" -- .venv/bin/pip install --disable-pip-version-check -r "$1"
    # ptf asks for packages that it does not use; one of them needs a compiler and Python's headers.
    [ $# = 1 ] || .venv/bin/pip install -q --disable-pip-version-check --no-deps -r ptf-tests/requirements.txt
    printf '%s\n' "$wanted" >".venv/$1"
}

install_develop() {
    install_requirements requirements-dev.txt requirements.txt ptf-tests/requirements.txt
}

# They want an older protobuf than this project.
install_foreign() {
    local venv=out/foreign/venv list=checks/foreign/requirements.txt
    cmp -s "$list" "$venv/requirements.txt" && return
    say "pip install -r $list (into $venv)"
    "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$list"
    "$venv/bin/pip" install -q --disable-pip-version-check --target "$venv/finsy" -r checks/foreign/requirements-finsy.txt
    install -D -m 644 checks/foreign/p4config_pb2.py "$("$venv/bin/python" -c 'import p4; print(p4.__path__[0])')/tmp/p4config_pb2.py"
    cp "$list" "$venv/requirements.txt"
}

# What WHEEL names is unpacked by pip; what APSWITCH names is taken as it is; else cargo builds PARTS of it.
install_switch() {
    if [ -n "${WHEEL:-}" ]; then
        [ -f "$WHEEL" ] || die "WHEEL=$WHEEL: there is no such file; \`make dist\` makes one in out/dist"
        .venv/bin/pip install -q --disable-pip-version-check --no-deps --force-reinstall "$WHEEL"
    elif [ -n "${APSWITCH:-}" ]; then
        [ -x "$APSWITCH" ] || die "APSWITCH=$APSWITCH is no program"
    elif command -v cargo >/dev/null; then
        # One selection of packages for all builds: cargo unites the features of what is selected, and compiles each
        # dependency once for each set of them.
        # shellcheck disable=SC2086 # words
        tools/progress.py cargo "Rust" -- cargo build --release ${PARTS:-}
    else
        die "cargo is missing: install Rust 1.95 or newer, or give a wheel of the switch: WHEEL=apswitch-...whl"
    fi
}

# shellcheck disable=SC2086 # words
case "${1:-}" in
    # Python first: what is built beside `python` would go on for minutes after its refusal.
    system) need_python "${PYTHON:-python3}"; install_missing $SYSTEM ;;
    bpf) install_missing $BPF ;;
    tests) install_tests ;;
    fleet) command -v nats-server >/dev/null || install_missing $FLEET ;;
    packages) install_missing $BPF $PACKAGES ;;
    ns3) install_ns3 ;;
    python) install_python ;;
    develop) install_python; install_develop ;;
    switch) install_switch ;;
    foreign) install_foreign ;;
    wifi-kernel) install_wifi_kernel ;;
    *) die "usage: tools/install.sh system|bpf|tests|fleet|packages|python|develop|switch|ns3|foreign|wifi-kernel" ;;
esac
