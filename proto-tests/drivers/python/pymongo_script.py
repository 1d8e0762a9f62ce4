"""The script that every driver runs, on PyMongo: `pymongo_script.py <connection string> <database>`."""

import sys
import time

from pymongo import ASCENDING, DESCENDING, DeleteOne, InsertOne, MongoClient, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.collation import Collation
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from transcript import LARGE, MANY, PADDING, counts, event, failure, item, of_set, server, show, updated


def attempt(step, run):
    try:
        show(step, run())
    except PyMongoError as error:
        show(step, failure(error))


def fail_once(client, database, command):
    """The server closes the connection on the next such command of this application."""
    data = {"failCommands": [command], "closeConnection": True, "appName": database.name}
    attempt(f"fail {command}", lambda: client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)["ok"])


def writes(items):
    show("insertOne", items.insert_one(item(0)).inserted_id)
    show("insertMany", items.insert_many([item(number) for number in range(1, 100)]).inserted_ids)
    attempt("duplicate", lambda: items.insert_one(item(0)).inserted_id)
    mixed = [
        InsertOne(item(200)),
        UpdateOne({"_id": 1}, {"$set": {"bulk": True}}),
        ReplaceOne({"_id": 2}, item(2) | {"bulk": True}),
        UpdateOne({"_id": 210}, {"$set": {"bulk": True}}, upsert=True),
        DeleteOne({"_id": 3}),
        InsertOne(item(0)),
        InsertOne(item(201)),
    ]
    attempt("bulkWrite ordered", lambda: counts(items.bulk_write(mixed).bulk_api_result))
    attempt("bulkWrite unordered", lambda: counts(items.bulk_write(mixed, ordered=False).bulk_api_result))
    good = [InsertOne(item(202)), DeleteOne({"_id": 202}), UpdateOne({"_id": 4}, {"$inc": {"group": 10}})]
    attempt("bulkWrite", lambda: counts(items.bulk_write(good).bulk_api_result))
    show("updateOne", updated(items.update_one({"_id": 5}, {"$set": {"name": "five"}, "$push": {"tags": "new"}})))
    show("updateMany", updated(items.update_many({"group": 1}, [{"$set": {"price": {"$add": ["$price", 1]}}}])))
    show("replaceOne", updated(items.replace_one({"_id": 6}, {"_id": 6, "group": 6})))
    show("upsert", updated(items.update_one({"_id": 220}, {"$set": {"group": 7}}, upsert=True)))
    after = ReturnDocument.AFTER
    show("findOneAndUpdate", items.find_one_and_update({"_id": 7}, {"$inc": {"group": 1}}, return_document=after))
    show("findOneAndReplace", items.find_one_and_replace({"_id": 8}, {"group": 8}, projection={"tags": 0}))
    show("findOneAndDelete", items.find_one_and_delete({"group": 4}, sort=[("_id", DESCENDING)]))
    show("deleteOne", items.delete_one({"_id": 220}).deleted_count)
    show("deleteMany", items.delete_many({"_id": {"$gte": 200}}).deleted_count)


def reads(items):
    found = items.find({"group": {"$lt": 3}}, {"name": 1, "at": 1}).sort("price", DESCENDING).skip(5).limit(4)
    show("find", found.to_list())
    show("findOne", items.find_one({"_id": "none"}))
    show("batches", [found["_id"] for found in items.find({}, batch_size=7).sort("_id")])
    with items.find({}, batch_size=5).sort("_id") as cursor:
        show("closed early", [next(cursor)["_id"] for _ in range(7)])
    collation = Collation(locale="en", numericOrdering=True)
    show("collation", [found["_id"] for found in items.find({"_id": {"$lt": 30}}).sort("name").collation(collation)])
    by_group = [{"$group": {"_id": "$group", "price": {"$sum": "$price"}, "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    show("aggregate", items.aggregate(by_group).to_list())
    tagged = items.aggregate([{"$unwind": "$tags"}, {"$sort": {"_id": 1, "tags": 1}}], batchSize=7)
    show("aggregate in batches", [[one["_id"], one["tags"]] for one in tagged])
    show("distinct", sorted(items.distinct("tags")))
    show("countDocuments", items.count_documents({"group": 2}))
    show("estimatedDocumentCount", items.estimated_document_count())


def administration(database, items):
    show("createIndex", items.create_index([("group", ASCENDING), ("at", DESCENDING)], name="page"))
    attempt("createIndex again", lambda: items.create_index("group", name="page"))
    show("listIndexes", [[index["name"], index["key"].to_dict()] for index in items.list_indexes()])
    show("hint", items.find({"group": 2}, {"_id": 1}).hint("page").to_list())
    show("dropIndex", items.drop_index("page"))
    attempt("no such command", lambda: database.command("noSuchCommand"))
    attempt("bad filter", lambda: items.find_one({"group": {"$nothing": 1}}))
    attempt("create", lambda: database.create_collection("checked", validator={"size": {"$gt": 0}}).name)
    attempt("create again", lambda: database.create_collection("checked", capped=True, size=4096).name)
    attempt("validator", lambda: database.checked.insert_one({"_id": 1, "size": 0}).inserted_id)
    show("listCollections", sorted(database.list_collection_names()))
    show("listDatabases", database.name in database.client.list_database_names())


def large(database):
    show("large document", database.large.insert_one({"_id": 1, "text": LARGE}).inserted_id)
    show("large document read", database.large.find_one({"_id": 1})["text"] == LARGE)
    many = ({"_id": number, "text": PADDING} for number in range(MANY))
    show("large bulk", len(database.many.insert_many(many).inserted_ids))
    show("large bulk read", sum(one["_id"] for one in database.many.find()))
    show("large bulk deleted", database.many.delete_many({}).deleted_count)


def unacknowledged(database):
    quiet = database.quiet.with_options(write_concern=WriteConcern(w=0))
    show("unacknowledged", [quiet.insert_one({"_id": 1}).acknowledged, quiet.insert_one({"_id": 1}).acknowledged])
    deadline = time.monotonic() + 20
    while (found := database.quiet.find_one()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    show("unacknowledged read", found)


def sessions(client, database, items):
    with client.start_session(causal_consistency=True) as session:
        database.said.insert_one({"_id": 1}, session=session)
        show("session", [database.said.find_one(session=session), session.operation_time is not None])
    fail_once(client, database, "find")
    attempt("retried read", lambda: items.find_one({"_id": 9}))
    fail_once(client, database, "insert")
    attempt("retried write", lambda: database.said.insert_one({"_id": 2}).inserted_id)
    show("retried write read", database.said.count_documents({}))


def transactions(client, database, items):
    with client.start_session() as session:
        session.start_transaction()
        items.insert_many([item(300), item(301)], session=session)
        items.update_one({"_id": 10}, {"$set": {"name": "ten"}}, session=session)
        inside = len(items.find({"_id": {"$gte": 300}}, session=session, batch_size=1).to_list())
        show("transaction", [inside, items.count_documents({"_id": {"$gte": 300}})])
        session.commit_transaction()
        show("committed", [items.count_documents({"_id": {"$gte": 300}}), items.find_one({"_id": 10})["name"]])
        session.start_transaction()
        show("aborted", items.delete_many({"_id": {"$gte": 300}}, session=session).deleted_count)
        session.abort_transaction()
        show("after abort", items.count_documents({"_id": {"$gte": 300}}))
        session.start_transaction()
        attempt("duplicate in transaction", lambda: items.insert_one(item(300), session=session).inserted_id)
        session.abort_transaction()

        def transfer(session):
            items.update_one({"_id": 11}, {"$inc": {"group": 100}}, session=session)
            return items.find_one({"_id": 11}, session=session)["group"]

        fail_once(client, database, "commitTransaction")
        show("withTransaction", session.with_transaction(transfer))
        show("withTransaction read", items.find_one({"_id": 11})["group"])


def conflict(client, items):
    with client.start_session() as first, client.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        items.update_one({"_id": 12}, {"$set": {"name": "first"}}, session=first)
        attempt("write conflict", lambda: updated(items.update_one({"_id": 12}, {"$set": {"name": "second"}}, session=second)))
        second.abort_transaction()
        first.commit_transaction()
    show("write conflict read", items.find_one({"_id": 12})["name"])


def concerns(client, items):
    safe = items.with_options(write_concern=WriteConcern(w="majority"), read_concern=ReadConcern("majority"))
    with client.start_session(causal_consistency=True) as session:
        show("majority", updated(safe.update_one({"_id": 13}, {"$set": {"name": "thirteen"}}, session=session)))
        anywhere = safe.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)
        show("secondaryPreferred", anywhere.find_one({"_id": 13}, session=session)["name"])
        show("secondaryPreferred batches", len(anywhere.find({}, batch_size=7, session=session).to_list()))
    linearizable = items.with_options(read_concern=ReadConcern("linearizable"))
    show("linearizable", linearizable.find_one({"_id": 13})["name"])
    with client.start_session(snapshot=True) as session:
        before = items.count_documents({}, session=session)
        safe.insert_one(item(310))
        show("snapshot", items.count_documents({}, session=session) - before)


def changes(database):
    watched = database.watched
    with watched.watch(full_document="updateLookup", max_await_time_ms=500) as stream:
        show("change stream", stream.try_next())
        watched.insert_one(item(1))
        watched.update_one({"_id": 1}, {"$set": {"name": "one"}, "$unset": {"price": 1}})
        watched.insert_one({"_id": 2})
        watched.delete_one({"_id": 2})
        seen = [next(stream) for _ in range(4)]
        show("changes", [event(change) for change in seen])
    with watched.watch(resume_after=seen[0]["_id"]) as stream:
        show("resumed", event(next(stream)))


def on_standalone(client, database, items):
    with client.start_session() as session:
        session.start_transaction()
        attempt("transaction", lambda: items.insert_one(item(300), session=session).inserted_id)
    attempt("change stream", lambda: database.watched.watch().try_next())


def main(uri, name):
    with MongoClient(uri, appname=name) as client:
        client.drop_database(name)
        database = client[name]
        items = database.items
        hello = client.admin.command("hello")
        show("server", server(client.admin.command("buildInfo"), hello))
        show("ping", client.admin.command("ping")["ok"])
        writes(items)
        reads(items)
        administration(database, items)
        large(database)
        unacknowledged(database)
        sessions(client, database, items)
        if of_set(hello):
            transactions(client, database, items)
            conflict(client, items)
            concerns(client, items)
            changes(database)
        else:
            on_standalone(client, database, items)
        client.drop_database(name)


main(*sys.argv[1:])
