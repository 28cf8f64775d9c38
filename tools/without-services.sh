#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command that installs packages, and keeps their services from being started, and from being enabled for the next
# boot. The programs that would do it are covered by one that does nothing, in a mount namespace that only the command
# sees, so the host stays as it is.
set -eu
if [ "${1:-}" != --covered ]; then
    exec unshare --mount "$0" --covered "$@"
fi
shift
for program in /usr/sbin/invoke-rc.d /usr/bin/deb-systemd-invoke /usr/bin/deb-systemd-helper; do
    [ ! -e "$program" ] || mount --bind /bin/true "$program"
done
exec "$@"
