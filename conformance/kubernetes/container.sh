#!/bin/sh
# Starts a program in a root directory of its own, as its container would: the system's directories read-only, the program, the
# volumes. Runs within `ip netns exec`, which made a mount namespace, so nothing is mounted outside.
# Arguments: ROOT PROGRAM USER:GROUP WRITABLE [VOLUME MOUNT_PATH]... -- [ARGUMENT]...
set -eu
root=$1 program=$2 user=$3 writable=$4
shift 4
mount -t tmpfs -o mode=755 container "$root"
for directory in usr bin sbin lib lib64 etc/ssl; do
    if [ -L "/$directory" ]; then
        cp -P "/$directory" "$root/$directory"
    elif [ -d "/$directory" ]; then
        mkdir -p "$root/$directory"
        mount --bind "/$directory" "$root/$directory"
        mount -o remount,bind,ro "$root/$directory"
    fi
done
for directory in proc sys dev; do
    mkdir "$root/$directory"
    mount --rbind "/$directory" "$root/$directory"
done
mkdir -m 1777 "$root/tmp"
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
: >"$root/program"
mount --bind "$program" "$root/program"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
[ "$writable" = writable ] || mount -o remount,ro "$root"
exec chroot --userspec="$user" "$root" /program "$@"
