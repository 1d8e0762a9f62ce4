# 0 is a removal, 1 an upgrade.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now mongoshape.service
fi
