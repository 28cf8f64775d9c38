#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots one of Debian's kernels in a virtual machine on this machine's own files, and runs a command there as root:
#   tools/debian-kernel.sh FOLDER COMMAND...
# FOLDER has the kernel's boot/ and lib/modules/, as `apt-get download linux-image-6.1.0-56-amd64` and `dpkg-deb -x` make
# it. What the command writes stays in the machine's memory. Needs qemu-system-x86, busybox-static and kmod. The processor
# is emulated, about ten times as slow as this one; MACHINE="-enable-kvm -cpu host" is faster. Exits as the command does.
set -euo pipefail

QEMU=${QEMU:-qemu-system-x86_64}
BUSYBOX=${BUSYBOX:-/bin/busybox}
MEMORY=${MEMORY:-2G}
DRIVERS="virtio_pci 9pnet_virtio 9p overlay"

die() { printf 'error: %s\n' "$*" >&2; exit 2; }

[ $# -ge 2 ] || die "usage: $0 FOLDER COMMAND..."
folder=$(realpath "$1")
shift
root=$folder
[ -d "$root/lib/modules" ] || root=$folder/usr
image=$(find "$folder" -name 'vmlinuz*' | head -n 1)
[ -n "$image" ] && [ -d "$root/lib/modules" ] || die "$folder has no vmlinuz and lib/modules/"
release=$(ls "$root/lib/modules")

work=$(mktemp -d -p "${TMPDIR:-/var/tmp}" debian-kernel-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/bin" "$work/tree/modules" "$work/tree/lib/modules"
[ -f "$root/lib/modules/$release/modules.dep" ] || depmod -b "$root" "$release"
cp "$BUSYBOX" "$work/tree/bin/busybox"
for driver in $DRIVERS; do
    # Lines of "insmod FILE", in the order of their need; "builtin" for what the kernel has.
    modprobe -d "$root" -S "$release" --show-depends "$driver" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' >"$work/modules"
while read -r module; do
    name=$(basename "${module%.xz}")
    case $module in *.xz) xz -dc "$module" ;; *) cat "$module" ;; esac >"$work/tree/modules/$name"
    echo "$name" >>"$work/tree/order"
done <"$work/modules"
printf '%s\n' "cd $(printf '%q' "$PWD")" "$(printf '%q ' "$@")" >"$work/tree/command"
cat >"$work/tree/init" <<'INIT'
#!/bin/busybox sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
exec >/dev/ttyS0 2>&1 </dev/null
while read -r module; do insmod "/modules/$module"; done </order
mkdir /below /memory /new
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 machine /below
mount -t tmpfs none /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/below,upperdir=/memory/upper,workdir=/memory/work none /new
cp /command /new/command
for directory in dev/shm run tmp var/tmp lib/modules; do mkdir -p "/new/$directory"; done
mount -t proc none /new/proc
mount -t sysfs none /new/sys
mount -t cgroup2 none /new/sys/fs/cgroup
mount -t bpf none /new/sys/fs/bpf
mount --move /dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 none /new/dev/pts
ln -sf /proc/self/fd /new/dev/fd
for directory in dev/shm run tmp var/tmp; do mount -t tmpfs none "/new/$directory"; done
for word in $(cat /new/proc/cmdline); do
    case $word in modules=*) mount -t tmpfs none /new/lib/modules && ln -s "${word#modules=}" "/new/lib/modules/$(uname -r)" ;; esac
done
chroot /new ip link set lo up
chroot /new /bin/bash /command </new/dev/null >/new/dev/ttyS0 2>&1
echo $? >/new/dev/ttyS1
chroot /new /bin/sync
poweroff -f
INIT
chmod +x "$work/tree/init"
(cd "$work/tree" && find . | "$BUSYBOX" cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initrd"

# Emulated: a virtual machine's own KVM is often broken.
machine=${MACHINE:--cpu max}
# shellcheck disable=SC2086 # words
"$QEMU" $machine -m "$MEMORY" -smp 2 -nodefaults -no-user-config -no-reboot -display none \
    -kernel "$image" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check modules=$root/lib/modules/$release" \
    -serial stdio -serial "file:$work/code" -device virtio-rng-pci \
    -virtfs "local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap" </dev/null
exit "$(tr -dc 0-9 <"$work/code" | grep . || echo 2)"
