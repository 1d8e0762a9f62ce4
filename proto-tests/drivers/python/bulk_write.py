"""An application that writes to two collections at once by the driver's `MongoClient.bulk_write` (MongoDB 8.0).

Each operation is executed on both collections. A line begins with the name of the collection that it is about: one is
shaped, and the other is plain.
"""

import sys
from datetime import datetime, timedelta, timezone

from bson import json_util
from pymongo import DeleteMany, DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import ClientBulkWriteException

COLLECTIONS = ("trades", "plain")

client = MongoClient(sys.argv[1])
database = client.get_default_database()


def show(collection, step, value):
    print(collection, step, json_util.dumps(value, json_options=json_util.CANONICAL_JSON_OPTIONS, sort_keys=True))


def trade(number):
    return {
        "_id": number,
        "customerId": number % 3,
        "quantity": 10 * number,
        "date": datetime(2023, 10, 26, 15, 47, 3, 434000, timezone.utc) + timedelta(minutes=number),
    }


def outcome(index, result, errors):
    if index in errors:
        return {"code": errors[index]["code"]}
    if index in result.insert_results:
        return {"inserted": result.insert_results[index].inserted_id}
    if index in result.update_results:
        updated = result.update_results[index]
        return {"matched": updated.matched_count, "modified": updated.modified_count, "upserted": updated.upserted_id}
    return {"deleted": result.delete_results[index].deleted_count}


def bulk(step, operations, ordered=True):
    names = [f"{database.name}.{collection}" for collection in COLLECTIONS]
    models = [operation(name) for operation in operations for name in names]
    errors = {}
    try:
        result = client.bulk_write(models, ordered=ordered, verbose_results=True)
    except ClientBulkWriteException as error:
        errors = {failed["idx"]: failed for failed in error.write_errors}
        result = error.partial_result
    for position, collection in enumerate(COLLECTIONS):
        outcomes = [outcome(index, result, errors) for index in range(position, len(models), len(COLLECTIONS))]
        show(collection, step, outcomes)
        show(collection, "documents", list(database[collection].find().sort("_id", 1)))
    show_counts(step, result)


def show_counts(step, result):
    counts = (result.inserted_count, result.matched_count, result.modified_count, result.upserted_count, result.deleted_count)
    for collection in COLLECTIONS:
        show(collection, f"counts of {step}", [count / len(COLLECTIONS) for count in counts])


bulk("insert", [lambda name, number=number: InsertOne(trade(number), namespace=name) for number in range(12)])
bulk(
    "ordered",
    [
        lambda name: UpdateOne({"_id": 1}, {"$inc": {"quantity": 5}}, namespace=name),
        lambda name: UpdateMany({"customerId": 2}, {"$set": {"state": "open"}}, namespace=name),
        lambda name: ReplaceOne({"_id": 3}, {**trade(3), "quantity": -1}, namespace=name),
        lambda name: UpdateOne({"_id": 20}, {"$setOnInsert": trade(20)}, upsert=True, namespace=name),
        lambda name: UpdateOne({"_id": 99}, {"$inc": {"quantity": 1}}, namespace=name),
        lambda name: DeleteOne({"_id": 4}, namespace=name),
        lambda name: DeleteMany({"customerId": 0, "quantity": {"$gt": 60}}, namespace=name),
    ],
)
bulk(
    "unordered",
    [
        lambda name: InsertOne(trade(1), namespace=name),
        lambda name: InsertOne(trade(30), namespace=name),
        lambda name: UpdateOne({"_id": 30}, {"$inc": {"date": 1}}, namespace=name),
        lambda name: DeleteOne({"_id": 5}, namespace=name),
    ],
    ordered=False,
)
