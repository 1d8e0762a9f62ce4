"""What a program on MongoEngine prints: a line of JSON for each step, the same in every run on equal servers."""

import json

from bson import json_util
from mongoengine.base import BaseDocument
from mongoengine.errors import MongoEngineException, ValidationError
from mongoengine.queryset.base import BaseQuerySet
from pymongo.errors import PyMongoError


def _shown(value):
    if isinstance(value, BaseDocument):
        return _shown(value.to_mongo().to_dict())
    if isinstance(value, (BaseQuerySet, list, tuple)):
        return [_shown(each) for each in value]
    if isinstance(value, dict) and "_id" in value:
        # The order of a stored document's own fields is the server's.
        return dict(sorted(value.items()))
    return value


def _failure(error):
    """What an application can tell of an error; the mapper's own has the driver's in it."""
    # What PyMongo adds to a message has the server's clock in it.
    shown = {"error": type(error).__name__, "message": str(error).split(", full error")[0]}
    cause = error if isinstance(error, PyMongoError) else error.__cause__ or error.__context__
    if isinstance(cause, PyMongoError):
        shown |= {"cause": type(cause).__name__, "code": getattr(cause, "code", None)}
        details = getattr(cause, "details", None) or {}
        names = ("codeName", "errmsg", "keyPattern", "keyValue", "writeErrors")
        shown |= {name: details[name] for name in names if name in details}
    return shown


def step(name, run):
    try:
        line = {"step": name, "saw": _shown(run())}
    except (MongoEngineException, ValidationError, PyMongoError) as error:
        line = {"step": name, "failed": _failure(error)}
    print(json.dumps(line, default=json_util.default), flush=True)
