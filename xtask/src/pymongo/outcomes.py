"""A pytest plugin: a JSON line for each step of a test that tells something, in the file that the environment names."""

import json
import os
import re

import pymongo

# Some tests connect to the driver's default address, where they expect the server under test.
for _client in (pymongo.MongoClient, pymongo.AsyncMongoClient):
    _client.HOST, _client.PORT = os.environ["DB_IP"], int(os.environ["DB_PORT"])

_LINES = open(os.environ["PYMONGO_OUTCOMES"], "w", buffering=1, encoding="utf-8")
# The two runs that are compared differ in their ports, which is no difference.
_PORT = re.compile(r"(127\.0\.0\.1(?::|', ))\d+")
# Some errors repeat a document of 16 MB.
_DETAIL_LIMIT = 2000


def pytest_runtest_logreport(report):
    outcome = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xpassed" if outcome == "passed" else "xfailed"
    if report.when == "call" or outcome != "passed":
        detail = _PORT.sub(r"\1*", _detail(report)[:_DETAIL_LIMIT])
        _LINES.write(json.dumps({"test": report.nodeid, "outcome": outcome, "detail": detail}) + "\n")


def pytest_unconfigure():
    _LINES.close()


def _detail(report):
    if report.passed or report.longrepr is None:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else report.longreprtext
