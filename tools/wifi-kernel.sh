#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a user-mode Linux kernel that has mac80211_hwsim, for machines whose own kernel has not: `make wifi-kernel`.
# From Debian's linux-source package, into ${XDG_CACHE_HOME:-~/.cache}/programmable-access-point/wifi-kernel (about
# 30 MB; the sources are unpacked and built in a temporary directory of 2 GB). Nothing is installed, nothing is rebooted:
# the kernel is a program, and labs boot it on this machine's own files (topologies/kernels/kernel.py).
set -euo pipefail
cd "$(dirname "$0")/.."

KERNEL=${XDG_CACHE_HOME:-$HOME/.cache}/programmable-access-point/wifi-kernel
CONFIG=$PWD/tools/wifi-kernel.config
JOBS=$(nproc)

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

tools/install.sh wifi-kernel
source=$(find /usr/src -maxdepth 1 -name 'linux-source-*.tar.xz' | sort -V | tail -n 1)
[ -n "$source" ] || die "no /usr/src/linux-source-*.tar.xz: install the package linux-source"

# What the kernel is made from: unchanged, it need not be built again.
made_from=$(sha256sum "$CONFIG" | cut -d' ' -f1)-$(basename "$source")-$(stat -c %Y "$source")
if [ -x "$KERNEL/linux" ] && [ "$(cat "$KERNEL/made-from" 2>/dev/null)" = "$made_from" ]; then
    say "$KERNEL/linux is up to date"
    exit 0
fi

work=$(mktemp -d -p "${TMPDIR:-/var/tmp}" wifi-kernel-XXXXXX)
trap 'rm -rf "$work"' EXIT
say "unpacking $source"
mkdir "$work/source" "$work/build"
tar -xJf "$source" -C "$work/source" --strip-components=1
build() { make -s -C "$work/source" ARCH=um O="$work/build" "$@"; }

build KCONFIG_ALLCONFIG="$CONFIG" allnoconfig
while read -r option; do
    [ "$option" = CONFIG_NET_SCH_DUALPI2=y ] && continue # newer than some sources, which an arm of `l4s` does without
    grep -qxF "$option" "$work/build/.config" || die "this source does not take $option (tools/wifi-kernel.config)"
done < <(grep '^CONFIG_' "$CONFIG")

say "building $(build kernelversion) for user mode, with $JOBS jobs (about ten minutes on two cores)"
nice -n 10 make -s -C "$work/source" ARCH=um O="$work/build" -j "$JOBS" linux modules >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    die "the kernel did not build"
}
mkdir -p "$work/kernel"
build INSTALL_MOD_PATH="$work/kernel" INSTALL_MOD_STRIP=1 modules_install
strip -o "$work/kernel/linux" "$work/build/linux"
cp "$work/build/.config" "$work/kernel/config"
echo "$made_from" >"$work/kernel/made-from"
rm -rf "$KERNEL"
mkdir -p "$(dirname "$KERNEL")"
mv "$work/kernel" "$KERNEL"
say "$KERNEL/linux: $("$KERNEL/linux" --version)"
