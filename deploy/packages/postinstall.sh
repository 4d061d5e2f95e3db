#!/bin/sh
# After the files are in place. Debian calls it with `configure` and the former version, RPM with the number of
# installed versions.
set -e

config=/etc/yumen/yumen.yaml
state=/var/lib/yumen

is_upgrade=no
case "$1" in
configure) [ -z "$2" ] || is_upgrade=yes ;;
abort-*) exit 0 ;;
*) [ "$1" = 1 ] || is_upgrade=yes ;;
esac

if ! getent passwd yumen >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir "$state" --shell /usr/sbin/nologin yumen
fi
# The settings may contain keys: only root writes them, and only the gateway reads them.
chown root:yumen "$config"
install -d -m 0700 -o yumen -g yumen "$state"

# An upgrade that fails leaves the former process serving. That is no reason to fail the installation.
warn_of_upgrade() {
    echo "yumen: the running gateway was not upgraded and continues to serve; see above, and try: $1" >&2
}

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ "$is_upgrade" = no ]; then
        # Debian starts services on installation; on RPM systems the presets decide.
        if [ "$1" = configure ]; then
            systemctl enable yumen.service || true
            systemctl start yumen.service || echo "yumen: not started; see: journalctl -u yumen" >&2
        else
            systemctl preset yumen.service || true
        fi
    elif systemctl --quiet is-active yumen.service; then
        # `yumen upgrade`: the new process takes over the sockets, then the former one drains.
        systemctl reload yumen.service || warn_of_upgrade "systemctl reload yumen"
    fi
elif [ "$is_upgrade" = yes ] && yumen health --config "$config" >/dev/null 2>&1; then
    # A container, or another service manager.
    yumen upgrade --config "$config" || warn_of_upgrade "yumen upgrade --config $config"
fi
