"""An application on pymongo: inserts trades, pages through them, counts them, prints all it sees as canonical JSON.

It is given a connection string that names the database, and must not be able to tell whom it talks to.
"""

import sys
from datetime import datetime, timedelta, timezone

from bson import json_util
from pymongo import MongoClient


def show(what, value):
    print(what, json_util.dumps(value, json_options=json_util.CANONICAL_JSON_OPTIONS, sort_keys=True))


def trade(number):
    return {
        "_id": number,
        "ticker": "MDB" if number % 2 == 0 else "GOOG",
        "customerId": 123 if number % 5 < 3 else 456,
        "type": "buy" if number % 3 == 0 else "sell",
        "quantity": 10 * number,
        "date": datetime(2023, 10, 26, 15, 47, 3, 434000, timezone.utc) + timedelta(minutes=number),
    }


trades = MongoClient(sys.argv[1]).get_default_database()["trades"]

for number in range(5):
    show("inserted", trades.insert_one(trade(number)).inserted_id)
show("inserted", trades.insert_many([trade(number) for number in range(5, 25)]).inserted_ids)

for customer in (123, 456, 789):
    for page in (1, 2, 3):
        show(f"page {page} of {customer}", list(trades.find({"customerId": customer}).skip(10 * (page - 1)).limit(10)))
    show(f"count of {customer}", trades.count_documents({"customerId": customer}))
    show(f"all of {customer}", list(trades.find({"customerId": customer}, batch_size=7)))

show("first", trades.find_one({"customerId": 456}, {"_id": 0}))
show("latest", list(trades.find({"customerId": 123}).sort("date", -1).limit(3)))
show("large sells", list(trades.find({"type": "sell", "quantity": {"$gte": 150}}).sort("_id", 1)))
show("count", trades.count_documents({}))
show("estimated count", trades.estimated_document_count())
