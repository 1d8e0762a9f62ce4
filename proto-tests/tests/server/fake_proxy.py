#!/usr/bin/env python3
"""Stands in for the proxy where the harness itself is tested: ready at once, and logs what the test wants to see judged."""

import http.server
import os
import re
import signal
import sys

config = open(sys.argv[3]).read()
admin = re.search(r'\[admin\]\naddress = "(.*):(\d+)"', config)
behaviour = re.search(r"^# behaviour: (.*)$", config, re.MULTILINE).group(1)


class Admin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        bodies = {"/readyz": b"ready\n", "/livez": b"alive\n"}
        self.wfile.write(bodies.get(self.path, b'fake_total{a="b"} 7\n'))

    def log_message(self, *_):
        pass


def end(*_):
    os._exit(3 if behaviour == "exits with 3" else 0)


signal.signal(signal.SIGTERM, end)
print('{"level":"INFO","fields":{"message":"listening"}}', file=sys.stderr, flush=True)
if behaviour in ("WARN", "ERROR"):
    print('{"level":"%s","fields":{"message":"something odd"}}' % behaviour, file=sys.stderr, flush=True)
if behaviour == "refuses to start":
    sys.exit("bad configuration")
http.server.ThreadingHTTPServer((admin.group(1), int(admin.group(2))), Admin).serve_forever()
