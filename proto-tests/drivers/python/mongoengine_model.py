"""An application on MongoEngine: keeps trades, and prints all it sees: `mongoengine_model.py <connection string>`.

The connection string names a database, which is empty. The application must not be able to tell whom it talks to.
"""

import sys
from datetime import datetime

from mongoengine import Q, connect, disconnect
from mongoengine_schema import Customer, Note, Settlement, Trade, fields, object_id, trade
from mongoengine_transcript import step
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError

NOBODY = object_id(999_999)


def by_id(number):
    return Trade.objects(id=object_id(number))


def some(*numbers):
    return Trade.objects(id__in=[object_id(number) for number in numbers]).order_by("id")


def begin():
    step("ensure_indexes", Trade.ensure_indexes)
    step("compare_indexes", Trade.compare_indexes)
    step("list_indexes", Trade.list_indexes)
    step("index_information", lambda: {name: index["key"] for name, index in Trade.objects._collection.index_information().items()})
    step("customers", lambda: [Customer(number=123, name="Ada").save(), Customer(number=456, name="Bob").save()])


def create():
    step("save", trade(0).save)
    step("save, inserted", lambda: trade(1).save(force_insert=True))
    step("create", lambda: Trade.objects.create(**fields(2)))
    step("save with more", trade(3, tags=["x", "y"], notes=[Note(text="one", by="Ada")]).save)
    step("insert", lambda: len(Trade.objects.insert([trade(number) for number in range(4, 40)])))
    step("insert without loading", lambda: Trade.objects.insert([trade(40), trade(41)], load_bulk=False))
    step("validation", trade(50, type="lend").save)
    step("duplicate", lambda: trade(0).save(force_insert=True))
    step("duplicates in insert", lambda: Trade.objects.insert([trade(42), trade(1), trade(43)]))


def read():
    step("get", lambda: Trade.objects.get(id=object_id(3)))
    step("with_id", lambda: Trade.objects.with_id(str(object_id(3))))
    step("in_bulk", lambda: list(Trade.objects.in_bulk([object_id(3), object_id(4)]).values()))
    step("get nobody", lambda: Trade.objects.get(id=NOBODY))
    step("get several", lambda: Trade.objects.get(customer=456))
    step("first", lambda: Trade.objects(customer=456).order_by("-date").only("ticker", "quantity").first())
    for customer in (123, 456, 789):
        for page in (1, 2, 3):
            step(f"page {page} of {customer}", lambda: Trade.objects.page(customer, page))
        step(f"count of {customer}", lambda: Trade.objects(customer=customer).count())
        step(f"count of {customer} on page 2", lambda: Trade.objects.page(customer, 2).count(with_limit_and_skip=True))
    step("a slice", lambda: Trade.objects(customer=123).order_by("date")[5:12])
    step("latest", lambda: Trade.objects(customer=123).order_by("-date").limit(5).exclude("notes").as_pymongo())
    step("where", lambda: Trade.objects(quantity__gte=150, quantity__lt=300, type__in=["sell"]).order_by("id"))
    step("or", lambda: Trade.objects(Q(ticker="MDB", quantity__gt=380) | Q(notes__by="Ada")).order_by("id"))
    step("batches", lambda: Trade.objects(customer=456).order_by("date").batch_size(4))
    step("scalar", lambda: Trade.objects(customer=456).order_by("date").scalar("quantity", "ticker"))
    step("distinct", lambda: sorted(Trade.objects(customer=123).distinct("ticker")))
    step("count", Trade.objects.count)
    step("sum", lambda: Trade.objects(customer=123).sum("quantity"))
    step("average", lambda: Trade.objects(customer=456).average("quantity"))
    group = {"$group": {"_id": {"customer": "$customerId", "type": "$type"}, "sum": {"$sum": "$quantity"}, "n": {"$sum": 1}}}
    step("aggregate", lambda: list(Trade.objects(quantity__gte=50).aggregate([group, {"$sort": {"_id": 1}}])))


def save():
    def changed(change, number=3):
        one = Trade.objects.get(id=object_id(number))
        change(one)
        return one.save()

    def quantity(one):
        one.quantity = 31
        one.settled = Settlement(at=datetime(2023, 11, 1), by="Bob")

    def element(one):
        one.notes[1].text = "second"

    def pull(one):
        one.notes.remove(one.notes[0])
        one.tags.append("z")

    def array(one):
        one.notes = [Note(text="only")]

    def unset(one):
        one.settled.by = None

    def twice():
        first, second = Trade.objects.get(id=object_id(3)), Trade.objects.get(id=object_id(3))
        first.quantity = 32
        first.save()
        second.quantity = 33
        return second.save(save_condition={"quantity": 31})

    step("save after change", lambda: changed(quantity))
    step("save of nothing", lambda: changed(lambda one: None))
    step("save of a push", lambda: changed(lambda one: one.notes.append(Note(text="two", by="Bob"))))
    step("save of an element", lambda: changed(element))
    step("save of a pull", lambda: changed(pull))
    step("save of a whole array", lambda: changed(array))
    step("save of what is gone from it", lambda: changed(unset))
    step("save of an old state", twice)
    step("save over all of it", trade(4, quantity=41).save)
    step("reload", lambda: Trade.objects.get(id=object_id(4)).reload())
    step("modify of a document", lambda: Trade.objects.get(id=object_id(4)).modify({"quantity": 41}, inc__quantity=1))
    step("modify of an old state", lambda: Trade.objects.get(id=object_id(4)).modify({"quantity": 41}, inc__quantity=1))
    step("update of a document", lambda: Trade.objects.get(id=object_id(4)).update(push__notes=Note(text="four")))
    step("what is saved", lambda: some(3, 4))


def update():
    step("update_one", lambda: by_id(8).update_one(set__quantity=81, add_to_set__tags="eight"))
    step("update_one, in full", lambda: by_id(8).update_one(inc__quantity=1, full_result=True).raw_result["nModified"])
    step("update_one by fields", lambda: Trade.objects(ticker="GOOG", date=trade(39).date).update_one(set__tags=["large"]))
    step("update_one of nobody", lambda: Trade.objects(id=NOBODY).update_one(set__quantity=1))
    step("modify", lambda: by_id(6).modify(set__quantity=61, push__notes=Note(text="six"), new=True))
    step("modify, before", lambda: by_id(6).modify(inc__quantity=1))
    step("modify of nobody", lambda: Trade.objects(id=NOBODY).modify(set__quantity=1))
    step("modify by fields", lambda: Trade.objects(customer=123, ticker="MDB").order_by("-date").modify(inc__quantity=2, new=True))
    step("update", lambda: Trade.objects(customer=123, type="buy").update(inc__quantity=1000))
    step("update of all", lambda: Trade.objects.update(set__settled__by="Eve"))
    step("update of a pulled element", lambda: Trade.objects(notes__text="six").update(pull__notes__text="six"))
    step("update with a pipeline", lambda: Trade.objects(ticker="GOOG").update(__raw__=[{"$set": {"quantity": {"$add": ["$quantity", 1]}}}]))
    step("what is updated", lambda: Trade.objects.order_by("id"))


def move():
    hello = Trade._get_db().command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        return  # To put a document on another page takes a transaction, which this server does not have.

    def later():
        one = Trade.objects.get(id=object_id(10))
        one.date = datetime(2023, 10, 1)
        return one.save()

    step("another time", later)
    step("moved to another customer", lambda: by_id(9).modify(set__customer=789, new=True))
    step("what is moved", lambda: Trade.objects(customer=789))


def upsert():
    given = {"set__customer": 123, "set__ticker": "MDB", "set__type": "buy", "set__quantity": 1000, "set__date": trade(100).date}
    step("upsert_one that inserts", lambda: by_id(100).upsert_one(**given))
    step("upsert_one that updates", lambda: by_id(100).upsert_one(set__quantity=1))
    step("update that upserts", lambda: by_id(101).update(upsert=True, **given))
    step("update_one that upserts", lambda: by_id(102).update_one(upsert=True, set_on_insert__notes=[], **given))
    step("modify that upserts", lambda: by_id(103).modify(upsert=True, new=True, **given))
    new = Trade.objects(customer=123, ticker="AAPL", date=trade(104).date)
    step("upsert_one by fields", lambda: new.upsert_one(set_on_insert__id=object_id(104), set__type="sell", set__quantity=4))
    step("what is upserted", lambda: Trade.objects(id__gte=object_id(100)).order_by("id"))


def bulk():
    """MongoEngine has no bulk writes of its own: applications take the driver's collection."""
    collection = Trade._get_collection()

    def write(requests, ordered=True):
        try:
            result = collection.bulk_write(requests, ordered=ordered).bulk_api_result
        except BulkWriteError as error:
            result = error.details
        names = ("writeErrors", "nInserted", "nMatched", "nModified", "nRemoved", "nUpserted", "upserted")
        return {name: result[name] for name in names}

    def plain(number, **fields):
        return trade(number, **fields).to_mongo().to_dict()

    def one(number):
        return {"_id": object_id(number)}

    mixed = [
        InsertOne(plain(200)),
        UpdateOne(one(200), {"$set": {"quantity": 201}}),
        UpdateMany({"customerId": 456}, {"$inc": {"quantity": 1}}),
        ReplaceOne(one(11), plain(11, quantity=111)),
        UpdateOne(one(202), {"$set": {name: value for name, value in plain(202).items() if name != "_id"}}, upsert=True),
        DeleteOne(one(12)),
        DeleteMany({"customerId": 123, "quantity": {"$lt": 150}}),
    ]
    step("bulk_write", lambda: write(mixed))
    step("bulk_write of updates", lambda: write([UpdateOne(one(number), {"$inc": {"quantity": 3}}) for number in (13, 14, 15)]))
    step("bulk_write with an error", lambda: write([InsertOne(plain(16)), InsertOne(plain(203))]))
    step("bulk_write with an error, unordered", lambda: write([InsertOne(plain(16)), InsertOne(plain(203))], ordered=False))
    step("what is written", lambda: Trade.objects.order_by("id"))


def remove():
    step("delete of a document", lambda: Trade.objects.get(id=object_id(20)).delete())
    step("delete by id", by_id(21).delete)
    step("delete by id again", by_id(21).delete)

    def deleted():
        one = Trade.objects.get(id=object_id(22))
        by_id(22).delete()
        one.reload()

    step("reload of what was deleted", deleted)
    step("save of what was deleted", lambda: trade(22).save())
    step("modify that removes", lambda: by_id(23).modify(remove=True))
    step("modify that removes nobody", lambda: Trade.objects(id=NOBODY).modify(remove=True))
    step("modify that removes by fields", lambda: Trade.objects(customer=456).order_by("date").modify(remove=True))
    step("delete of a page", lambda: Trade.objects.page(456, 1, size=3).delete())
    step("what is left", lambda: Trade.objects.order_by("id"))
    step("delete of a customer's", lambda: Trade.objects(customer=456).delete())
    for customer in (123, 456):
        step(f"page 1 of {customer} then", lambda: Trade.objects.page(customer, 1))
        step(f"count of {customer} then", lambda: Trade.objects(customer=customer).count())
    step("save again", trade(20).save)
    step("delete of some", lambda: Trade.objects(Q(quantity__gt=1000) | Q(ticker="MDB", type="sell")).delete())
    step("what is left then", lambda: Trade.objects.order_by("id"))


connect(host=sys.argv[1])
for part in (begin, create, read, save, update, move, upsert, bulk, remove):
    part()
disconnect()
