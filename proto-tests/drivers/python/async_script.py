"""The script that every driver runs, on PyMongo's asyncio side: `async_script.py <connection string> <database>`."""

import asyncio
import sys
import time
from operator import attrgetter, itemgetter

from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.collation import Collation
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from transcript import LARGE, MANY, PADDING, counts, event, failure, item, of_set, server, show, updated

INSERTED = attrgetter("inserted_id")


async def attempt(step, running, shown=lambda value: value):
    try:
        show(step, shown(await running))
    except PyMongoError as error:
        show(step, failure(error))


async def fail_once(client, database, command):
    """The server closes the connection on the next such command of this application."""
    data = {"failCommands": [command], "closeConnection": True, "appName": database.name}
    running = client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
    await attempt(f"fail {command}", running, itemgetter("ok"))


async def writes(items):
    show("insertOne", (await items.insert_one(item(0))).inserted_id)
    show("insertMany", (await items.insert_many([item(number) for number in range(1, 100)])).inserted_ids)
    await attempt("duplicate", items.insert_one(item(0)), INSERTED)
    mixed = [
        InsertOne(item(200)),
        UpdateOne({"_id": 1}, {"$set": {"bulk": True}}),
        ReplaceOne({"_id": 2}, item(2) | {"bulk": True}),
        UpdateOne({"_id": 210}, {"$set": {"bulk": True}}, upsert=True),
        DeleteOne({"_id": 3}),
        InsertOne(item(0)),
        InsertOne(item(201)),
    ]

    def counted(result):
        return counts(result.bulk_api_result)

    await attempt("bulkWrite ordered", items.bulk_write(mixed), counted)
    await attempt("bulkWrite unordered", items.bulk_write(mixed, ordered=False), counted)
    good = [InsertOne(item(202)), DeleteOne({"_id": 202}), UpdateOne({"_id": 4}, {"$inc": {"group": 10}})]
    await attempt("bulkWrite", items.bulk_write(good), counted)
    show("updateOne", updated(await items.update_one({"_id": 5}, {"$set": {"name": "five"}, "$push": {"tags": "new"}})))
    show("updateMany", updated(await items.update_many({"group": 1}, [{"$set": {"price": {"$add": ["$price", 1]}}}])))
    show("replaceOne", updated(await items.replace_one({"_id": 6}, {"_id": 6, "group": 6})))
    show("upsert", updated(await items.update_one({"_id": 220}, {"$set": {"group": 7}}, upsert=True)))
    after = ReturnDocument.AFTER
    show("findOneAndUpdate", await items.find_one_and_update({"_id": 7}, {"$inc": {"group": 1}}, return_document=after))
    show("findOneAndReplace", await items.find_one_and_replace({"_id": 8}, {"group": 8}, projection={"tags": 0}))
    show("findOneAndDelete", await items.find_one_and_delete({"group": 4}, sort=[("_id", DESCENDING)]))
    show("deleteOne", (await items.delete_one({"_id": 220})).deleted_count)
    show("deleteMany", (await items.delete_many({"_id": {"$gte": 200}})).deleted_count)


async def reads(items):
    found = items.find({"group": {"$lt": 3}}, {"name": 1, "at": 1}).sort("price", DESCENDING).skip(5).limit(4)
    show("find", await found.to_list())
    show("findOne", await items.find_one({"_id": "none"}))
    show("batches", [found["_id"] async for found in items.find({}, batch_size=7).sort("_id")])
    async with items.find({}, batch_size=5).sort("_id") as cursor:
        show("closed early", [(await anext(cursor))["_id"] for _ in range(7)])
    collation = Collation(locale="en", numericOrdering=True)
    show("collation", [found["_id"] async for found in items.find({"_id": {"$lt": 30}}).sort("name").collation(collation)])
    by_group = [{"$group": {"_id": "$group", "price": {"$sum": "$price"}, "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    show("aggregate", await (await items.aggregate(by_group)).to_list())
    tagged = await items.aggregate([{"$unwind": "$tags"}, {"$sort": {"_id": 1, "tags": 1}}], batchSize=7)
    show("aggregate in batches", [[one["_id"], one["tags"]] async for one in tagged])
    show("distinct", sorted(await items.distinct("tags")))
    show("countDocuments", await items.count_documents({"group": 2}))
    show("estimatedDocumentCount", await items.estimated_document_count())


async def administration(database, items):
    show("createIndex", await items.create_index([("group", ASCENDING), ("at", DESCENDING)], name="page"))
    await attempt("createIndex again", items.create_index("group", name="page"))
    show("listIndexes", [[index["name"], index["key"].to_dict()] async for index in await items.list_indexes()])
    show("hint", await items.find({"group": 2}, {"_id": 1}).hint("page").to_list())
    show("dropIndex", await items.drop_index("page"))
    await attempt("no such command", database.command("noSuchCommand"))
    await attempt("bad filter", items.find_one({"group": {"$nothing": 1}}))
    await attempt("create", database.create_collection("checked", validator={"size": {"$gt": 0}}), attrgetter("name"))
    await attempt("create again", database.create_collection("checked", capped=True, size=4096), attrgetter("name"))
    await attempt("validator", database.checked.insert_one({"_id": 1, "size": 0}), INSERTED)
    show("listCollections", sorted(await database.list_collection_names()))
    show("listDatabases", database.name in await database.client.list_database_names())


async def large(database):
    show("large document", (await database.large.insert_one({"_id": 1, "text": LARGE})).inserted_id)
    show("large document read", (await database.large.find_one({"_id": 1}))["text"] == LARGE)
    many = ({"_id": number, "text": PADDING} for number in range(MANY))
    show("large bulk", len((await database.many.insert_many(many)).inserted_ids))
    show("large bulk read", sum([one["_id"] async for one in database.many.find()]))
    show("large bulk deleted", (await database.many.delete_many({})).deleted_count)


async def unacknowledged(database):
    quiet = database.quiet.with_options(write_concern=WriteConcern(w=0))
    show("unacknowledged", [(await quiet.insert_one({"_id": 1})).acknowledged for _ in range(2)])
    deadline = time.monotonic() + 20
    while (found := await database.quiet.find_one()) is None and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    show("unacknowledged read", found)


async def sessions(client, database, items):
    async with client.start_session(causal_consistency=True) as session:
        await database.said.insert_one({"_id": 1}, session=session)
        show("session", [await database.said.find_one(session=session), session.operation_time is not None])
    await fail_once(client, database, "find")
    await attempt("retried read", items.find_one({"_id": 9}))
    await fail_once(client, database, "insert")
    await attempt("retried write", database.said.insert_one({"_id": 2}), INSERTED)
    show("retried write read", await database.said.count_documents({}))


async def transactions(client, database, items):
    async with client.start_session() as session:
        await session.start_transaction()
        await items.insert_many([item(300), item(301)], session=session)
        await items.update_one({"_id": 10}, {"$set": {"name": "ten"}}, session=session)
        inside = await items.find({"_id": {"$gte": 300}}, session=session, batch_size=1).to_list()
        show("transaction", [len(inside), await items.count_documents({"_id": {"$gte": 300}})])
        await session.commit_transaction()
        show("committed", [await items.count_documents({"_id": {"$gte": 300}}), (await items.find_one({"_id": 10}))["name"]])
        await session.start_transaction()
        show("aborted", (await items.delete_many({"_id": {"$gte": 300}}, session=session)).deleted_count)
        await session.abort_transaction()
        show("after abort", await items.count_documents({"_id": {"$gte": 300}}))
        await session.start_transaction()
        await attempt("duplicate in transaction", items.insert_one(item(300), session=session), INSERTED)
        await session.abort_transaction()

        async def transfer(session):
            await items.update_one({"_id": 11}, {"$inc": {"group": 100}}, session=session)
            return (await items.find_one({"_id": 11}, session=session))["group"]

        await fail_once(client, database, "commitTransaction")
        show("withTransaction", await session.with_transaction(transfer))
        show("withTransaction read", (await items.find_one({"_id": 11}))["group"])


async def conflict(client, items):
    async with client.start_session() as first, client.start_session() as second:
        await first.start_transaction()
        await second.start_transaction()
        await items.update_one({"_id": 12}, {"$set": {"name": "first"}}, session=first)
        await attempt("write conflict", items.update_one({"_id": 12}, {"$set": {"name": "second"}}, session=second), updated)
        await second.abort_transaction()
        await first.commit_transaction()
    show("write conflict read", (await items.find_one({"_id": 12}))["name"])


async def concerns(client, items):
    safe = items.with_options(write_concern=WriteConcern(w="majority"), read_concern=ReadConcern("majority"))
    async with client.start_session(causal_consistency=True) as session:
        show("majority", updated(await safe.update_one({"_id": 13}, {"$set": {"name": "thirteen"}}, session=session)))
        anywhere = safe.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)
        show("secondaryPreferred", (await anywhere.find_one({"_id": 13}, session=session))["name"])
        show("secondaryPreferred batches", len(await anywhere.find({}, batch_size=7, session=session).to_list()))
    linearizable = items.with_options(read_concern=ReadConcern("linearizable"))
    show("linearizable", (await linearizable.find_one({"_id": 13}))["name"])
    async with client.start_session(snapshot=True) as session:
        before = await items.count_documents({}, session=session)
        await safe.insert_one(item(310))
        show("snapshot", await items.count_documents({}, session=session) - before)


async def changes(database):
    watched = database.watched
    async with await watched.watch(full_document="updateLookup", max_await_time_ms=500) as stream:
        show("change stream", await stream.try_next())
        await watched.insert_one(item(1))
        await watched.update_one({"_id": 1}, {"$set": {"name": "one"}, "$unset": {"price": 1}})
        await watched.insert_one({"_id": 2})
        await watched.delete_one({"_id": 2})
        seen = [await anext(stream) for _ in range(4)]
        show("changes", [event(change) for change in seen])
    async with await watched.watch(resume_after=seen[0]["_id"]) as stream:
        show("resumed", event(await anext(stream)))


async def on_standalone(client, database, items):
    async with client.start_session() as session:
        await session.start_transaction()
        await attempt("transaction", items.insert_one(item(300), session=session), INSERTED)
    await attempt("change stream", database.watched.watch())


async def main(uri, name):
    async with AsyncMongoClient(uri, appname=name) as client:
        await client.drop_database(name)
        database = client[name]
        items = database.items
        hello = await client.admin.command("hello")
        show("server", server(await client.admin.command("buildInfo"), hello))
        show("ping", (await client.admin.command("ping"))["ok"])
        await writes(items)
        await reads(items)
        await administration(database, items)
        await large(database)
        await unacknowledged(database)
        await sessions(client, database, items)
        if of_set(hello):
            await transactions(client, database, items)
            await conflict(client, items)
            await concerns(client, items)
            await changes(database)
        else:
            await on_standalone(client, database, items)
        await client.drop_database(name)


asyncio.run(main(*sys.argv[1:]))
