"""What both PyMongo programs print, and the documents that they store."""

import datetime

from bson import Int64, json_util
from pymongo import errors

STARTED = datetime.datetime(2023, 10, 26, 15, 47, 3, 434000)
# One document of 5 MB; 20,000 of half a kilobyte.
LARGE = "x" * 5_000_000
PADDING = "y" * 500
MANY = 20_000
FACTS = ["maxWireVersion", "maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize", "logicalSessionTimeoutMinutes", "readOnly"]


def item(number):
    return {
        "_id": number,
        "group": number % 5,
        "name": f"item {number}",
        "price": number * 0.25,
        "large": Int64(number * 10_000_000_000),
        "at": STARTED + datetime.timedelta(minutes=number),
        "tags": ["even" if number % 2 == 0 else "odd", f"g{number % 5}"],
    }


def show(step, value):
    print(step, json_util.dumps(value, json_options=json_util.CANONICAL_JSON_OPTIONS), flush=True)


def server(build, hello):
    return {"version": build["version"]} | {fact: hello.get(fact) for fact in FACTS}


def of_set(hello):
    """Whether this is a replica set or a router: something that has transactions and change streams."""
    return "setName" in hello or hello.get("msg") == "isdbgrid"


def failure(error):
    """What an application can tell of an error. What has no code came from a socket, and names a port."""
    shown = {"error": type(error).__name__, "labels": sorted(error._error_labels)}
    if isinstance(error, errors.BulkWriteError):
        details = error.details
        shown["writeErrors"] = [{name: one[name] for name in ("index", "code", "errmsg")} for one in details["writeErrors"]]
        return shown | counts(details)
    if isinstance(error, errors.OperationFailure):
        details = error.details or {}
        message = details.get("errmsg", str(error))
        shown |= {"code": error.code, "codeName": details.get("codeName"), "message": message}
    return shown


def counts(result):
    names = ["nInserted", "nMatched", "nModified", "nRemoved", "nUpserted", "upserted"]
    return {name: result[name] for name in names}


def updated(result):
    return {"matched": result.matched_count, "modified": result.modified_count, "upserted": result.upserted_id}


def event(change):
    names = ["operationType", "ns", "documentKey", "fullDocument", "updateDescription"]
    return {name: change[name] for name in names if name in change}
