#!/bin/sh
# Starts ingress-nginx's controller in a mount namespace of its own, with a writable /etc over that of the machine and an empty /tmp.
# NGINX finds its modules and libraries in the installation that scripts/deps.sh made.
# Usage: unshare -m bench/ingress-nginx/start.sh INSTALLATION WORK_FOLDER [ARGUMENT]...
set -eu
installation=$1 work=$2
shift 2
mount --make-rprivate /
mkdir -p "$work/etc/ingress-controller/ssl" "$work/etc/ingress-controller/auth" "$work/etc/ingress-controller/geoip" \
    "$work/etc/ingress-controller/telemetry" "$work/overlay"
cp -r "$installation/etc/nginx" "$work/etc/"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/etc,workdir=$work/overlay" /etc
mount -t tmpfs tmpfs /tmp
mkdir -p /var/log/nginx
mount -t tmpfs tmpfs /var/log/nginx
mkdir -p /tmp/nginx
export LD_LIBRARY_PATH="$installation/root/usr/lib/x86_64-linux-gnu:$installation/root/lib/x86_64-linux-gnu" NGINX_BINARY=/usr/sbin/nginx
exec "$installation/../bin/nginx-ingress-controller" "$@"
