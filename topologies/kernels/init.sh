#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a user-mode kernel, started by topologies/kernels/kernel.py. The machine's own files lie read-only
# below a memory file system that takes what the lab writes; only the directories in `writable` go through to the machine.
# lab=DIRECTORY on the kernel's command line holds: `writable` and `visible` (one directory a line: the latter are those
# that memory would cover, and are read-only), `run` (a script); takes `code`.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
exec >/dev/kmsg 2>&1
mount -t proc none /proc
# shellcheck disable=SC2013 # words
for word in $(cat /proc/cmdline); do
    case $word in lab=*) lab=${word#lab=} ;; modules=*) modules=${word#modules=} ;; esac
done
# What a kernel does not have built in.
overlay=$modules/kernel/fs/overlayfs/overlay.ko
[ ! -f "$overlay" ] || insmod "$overlay"
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work none /mnt/root
cd /mnt/root || exit
mount -t proc none proc
mount -t sysfs none sys
[ ! -d sys/kernel/debug ] || mount -t debugfs none sys/kernel/debug
mount -t devtmpfs none dev
mkdir -p dev/pts dev/shm lib/modules
mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts
ln -sf /proc/self/fd dev/fd
for directory in dev/shm run tmp var/tmp lib/modules; do mount -t tmpfs none "$directory"; done
mkdir "lib/modules/$(uname -r)"
mount -t hostfs -o "$modules" none "lib/modules/$(uname -r)"
share() {
    mkdir -p ".$2"
    mount "$1" -t hostfs -o "$2" none ".$2"
}
while read -r directory; do share -r "$directory"; done <"$lab/visible"
while read -r directory; do share -w "$directory"; done <"$lab/writable"
ip link set lo up
hostname lab-kernel
# Not chroot: who joins a mount namespace lands at its root.
pivot_root . mnt
exec </dev/tty0 >/dev/tty0 2>&1
# A session of its own with this terminal: Ctrl-C reaches the lab.
setsid --ctty --wait /bin/bash "$lab/run"
echo $? >"$lab/code"
# Power off. The kernel would take the end of its first process for a failure.
exec /usr/bin/python3 -c 'import ctypes; libc = ctypes.CDLL(None); libc.sync(); libc.reboot(0x4321FEDC)'
