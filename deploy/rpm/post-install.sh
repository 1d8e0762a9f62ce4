# Starts nothing. If this is an upgrade of a running proxy, restarts it.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart mongoshape.service
fi
