#!/bin/sh
# After the files are removed. `purge` removes the state too: resources, keys, history. The user stays, since files
# elsewhere may belong to it.
set -e

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/yumen
    # Files that the package did not install, such as certificates, stay.
    rmdir --ignore-fail-on-non-empty /etc/yumen 2>/dev/null || true
fi
