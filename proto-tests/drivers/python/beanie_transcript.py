"""What the shop on Beanie prints: a line of JSON for each step, the same in every run on equal servers."""

import json

from beanie import Link
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from bson import ObjectId, json_util
from pydantic import BaseModel, ValidationError
from pymongo.errors import PyMongoError
from pymongo.results import UpdateResult

# The driver makes the one, Beanie the other.
MADE = ("id", "revision_id")


def _shown(value):
    if isinstance(value, BaseModel):
        return {name: _shown(getattr(value, name)) for name in type(value).model_fields if name not in MADE}
    if isinstance(value, (list, tuple)):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, Link):
        return {"linked": value.ref.collection}
    if isinstance(value, UpdateResult):
        return {"matched": value.matched_count, "modified": value.modified_count}
    return "made" if isinstance(value, ObjectId) else value


def _failure(error):
    shown = {"error": type(error).__name__}
    if isinstance(error, PyMongoError):
        # What PyMongo adds to a message has the server's clock and ids in it.
        shown |= {"message": str(error).split(", full error")[0], "code": getattr(error, "code", None)}
        details = getattr(error, "details", None) or {}
        names = ("keyPattern", "keyValue", "nInserted", "nMatched", "nModified", "nRemoved")
        shown |= {name: _shown(details[name]) for name in names if name in details}
        shown["writeErrors"] = [(each["index"], each["code"], each["errmsg"]) for each in details.get("writeErrors", [])]
    return shown


async def step(name, run):
    try:
        line = {"step": name, "saw": _shown(await run())}
    except (PyMongoError, RevisionIdWasChanged, DocumentNotFound, ValidationError, RuntimeError) as error:
        line = {"step": name, "failed": _failure(error)}
    print(json.dumps(line, default=json_util.default), flush=True)
