#!/bin/sh
# Before the files are removed: Debian calls it with `remove` or `upgrade`, RPM with the number of versions that stay.
# During an upgrade the gateway continues to serve.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now yumen.socket yumen.service || true
fi
