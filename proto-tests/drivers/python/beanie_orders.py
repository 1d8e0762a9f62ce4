"""A shop on Beanie, which prints all it sees: `beanie_orders.py <connection string>`.

The connection string names a database, which is empty, on a replica set or a mongos. The shop must not be able to tell whom it talks to.
"""

import asyncio
import sys
import time
from datetime import datetime, timezone

from beanie import BulkWriter, UpdateResponse, init_beanie
from beanie.operators import AddToSet, ElemMatch, In, Inc, Max, Pull, Push, Set, Unset
from beanie_shop import Courier, Customer, Line, Order, Sales, Short, Status, numbered
from beanie_transcript import step
from pymongo import AsyncMongoClient

EXPIRY_LIMIT_S = 90


def at(month, day):
    return datetime(2026, month, day, tzinfo=timezone.utc)


async def by_number(number):
    return await Order.find_one(Order.number == f"A-{number:04}")


async def everything():
    return await Order.find_all().sort(Order.number).to_list()


class Shop:
    def __init__(self, client):
        self.client = client
        self.ada = self.bob = None

    async def open(self):
        await step("init_beanie", lambda: init_beanie(self.client.get_default_database(), document_models=[Customer, Courier, Order]))
        await step("indexes", self._indexes)
        await step("init_beanie again", lambda: init_beanie(self.client.get_default_database(), document_models=[Customer, Courier, Order]))
        self.ada = await Customer(email="ada@example.com", name="Ada").insert()
        self.bob = await Customer(email="bob@example.com", name="Bob").insert()
        await step("a customer again", Customer(email="ada@example.com", name="Adele").insert)

    async def _indexes(self):
        indexes = await Order.get_pymongo_collection().index_information()
        return {name: (index["key"], index.get("unique"), index.get("expireAfterSeconds")) for name, index in indexes.items()}

    async def place(self):
        ada, bob = self.ada, self.bob
        await step("insert", numbered(0, ada).insert)
        await step("create", numbered(1, bob).create)
        await step("insert_one", lambda: Order.insert_one(numbered(2, ada)))

        async def many(*orders, **options):
            return len((await Order.insert_many(list(orders), **options)).inserted_ids)

        await step("insert_many", lambda: many(*(numbered(number, bob if number % 3 == 0 else ada) for number in range(3, 45))))
        await step("number of the same customer", numbered(0, ada).insert)
        await step("number of another customer", numbered(0, bob).insert)
        await step("numbers of others", lambda: many(numbered(46, ada), numbered(1, ada), numbered(47, ada)))
        await step("numbers of others, unordered", lambda: many(numbered(48, ada), numbered(2, ada), numbered(49, bob), ordered=False))
        await step("a number twice", lambda: many(numbered(51, ada), numbered(51, bob)))
        await step("placed", everything)

    async def browse(self):
        ada, bob = self.ada, self.bob
        of_ada = Order.customer == ada.id
        for page in range(4):
            await step(f"page {page}", Order.find(of_ada).sort(-Order.placed_at).skip(10 * page).limit(10).to_list)
        await step("the other's", Order.find(Order.customer == bob.id).sort(+Order.placed_at).limit(5).to_list)
        await step("by number", lambda: by_number(7))
        await step("by number of nobody", lambda: by_number(700))
        await step("get", lambda: self._again(8))
        await step("by SKU", Order.find(of_ada, ElemMatch(Order.lines, {"sku": "S3", "quantity": {"$gte": 2}})).sort("placed_at").to_list)
        await step("in a month", Order.find(of_ada, Order.placed_at >= at(1, 20), Order.placed_at < at(2, 5)).sort("+placed_at").to_list)
        await step("in", Order.find(In(Order.number, ["A-0003", "A-0030", "none"])).sort("number").to_list)
        await step("count", Order.find(of_ada, Order.status == Status.PLACED).count)
        await step("count all", Order.count)
        await step("exists", Order.find(Order.customer == bob.id, {"lines.sku": "S9"}).exists)
        await step("distinct", lambda: Order.distinct("lines.sku", {"customer": bob.id}))
        await step("a projection", Order.find(of_ada).sort("-placed_at").limit(3).project(Short).to_list)
        await step("first_or_none", Order.find(of_ada).sort("placed_at").first_or_none)
        await step("async for", self._cursor)
        await step("max", lambda: Order.find(of_ada).max(Order.number))
        await step("sum", lambda: Order.sum("priority"))
        await step("sales", lambda: Order.find().aggregate([
            {"$unwind": "$lines"},
            {"$group": {"_id": "$customer", "sold": {"$sum": {"$multiply": ["$lines.quantity", "$lines.price"]}}, "numbers": {"$addToSet": "$number"}}},
            {"$lookup": {"from": "customers", "localField": "_id", "foreignField": "_id", "as": "customer"}},
            {"$project": {"_id": 0, "customer": {"$first": "$customer.name"}, "sold": 1, "orders": {"$size": "$numbers"}}},
            {"$sort": {"customer": 1}},
        ], projection_model=Sales).to_list())

    async def _again(self, number):
        return await Order.get((await by_number(number)).id)

    async def _cursor(self):
        return [order.number async for order in Order.find(Order.status == Status.PLACED, batch_size=6).sort("number")]

    async def change(self):
        ada, bob = self.ada, self.bob

        async def pay(number):
            order = await by_number(number)
            order.status = Status.PAID
            return await order.save()

        async def changed(digits, **more):
            order = await by_number(digits)
            for name, value in more.items():
                setattr(order, name, value)
            return await order.save_changes()

        async def both():
            mine, yours = await by_number(4), await by_number(4)
            mine.lines[0].quantity = 9
            await mine.save_changes()
            yours.status = Status.CANCELLED
            return await yours.save_changes()

        async def with_courier():
            courier = await Courier(name="Cleo").insert()
            await changed(5, courier=courier)
            return await Order.find(Order.courier.name == "Cleo", fetch_links=True).to_list()

        await step("save", lambda: pay(3))
        await step("save_changes", lambda: changed(6, note="soon"))
        await step("save what another has saved", both)
        await step("save a number that another has", lambda: changed(5, number="A-0006"))
        await step("save a new number", lambda: changed(10, number="B-0010"))
        await step("the old number again", numbered(10, bob).insert)
        await step("a link", with_courier)
        await step("set", lambda: self._update(11, {"$set": {"note": "eleven"}}))
        await step("operators", lambda: self._update(12, Set({Order.note: "twelve"}), Inc({"lines.0.quantity": 2}), Push({"lines": {"sku": "S9", "quantity": 1, "price": 1.0}})))
        await step("pull", lambda: self._update(12, Pull({"lines": {"sku": "S9"}})))
        await step("add to set and max", lambda: self._update(13, AddToSet({"lines": {"sku": "S9", "quantity": 1, "price": 1.0}}), Max({"lines.0.price": 99.0})))
        await step("unset", lambda: self._update(11, Unset({Order.note: ""})))
        await step("update one", lambda: Order.find_one(Order.customer == ada.id, Order.number == "A-0016").inc({"lines.0.quantity": 1}))
        await step("update all", lambda: Order.find(Order.customer == bob.id, Order.status == Status.PLACED).set({Order.status: Status.PAID}))
        await step("update all by a pipeline", lambda: Order.find(Order.status == Status.PAID).update([{"$set": {"note": {"$concat": ["$number", "!"]}}}]))
        await step("update and return", lambda: Order.find_one(Order.number == "A-0014").update(
            Set({Order.status: Status.SENT}), response_type=UpdateResponse.NEW_DOCUMENT))
        await step("update to a number that another has", lambda: Order.find_one(Order.number == "A-0014").update(Set({Order.number: "A-0016"})))
        await step("upsert", lambda: Order.find_one(Order.number == "A-0090").upsert(
            Set({Order.note: "never"}), on_insert=numbered(90, ada), response_type=UpdateResponse.NEW_DOCUMENT))
        await step("upsert again", lambda: Order.find_one(Order.number == "A-0090").upsert(
            Set({Order.note: "then"}), on_insert=numbered(90, ada), response_type=UpdateResponse.NEW_DOCUMENT))
        await step("replace", self._replace)
        await step("to another customer", lambda: changed(15, customer=bob.id))
        await step("a bulk", self._bulk)
        await step("changed", everything)

    async def _update(self, number, *operators):
        order = await by_number(number)
        await order.update(*operators)
        return order

    async def _replace(self):
        order = await by_number(17)
        order.lines = []
        return await order.replace()

    async def _bulk(self):
        async with BulkWriter() as bulk:
            await Order.insert_one(numbered(60, self.ada), bulk_writer=bulk)
            await Order.find_one(Order.number == "A-0018").update(Set({Order.status: Status.SENT}), bulk_writer=bulk)
            await Order.find(Order.lines.sku == "S2").update(Set({Order.note: "S2"}), bulk_writer=bulk)
            await Order.find_one(Order.number == "A-0019").delete(bulk_writer=bulk)
        return await Order.count()

    async def transact(self):
        async def commit(session):
            await numbered(70, self.ada).insert(session=session)
            await Order.find_one(Order.number == "A-0020").set({Order.status: Status.CANCELLED}, session=session)
            return await Order.find(Order.customer == self.ada.id, session=session).count()

        async def fail(session):
            await numbered(71, self.ada).insert(session=session)
            await Order.find(Order.customer == self.bob.id).delete(session=session)
            raise RuntimeError("out of stock")

        async def duplicate(session):
            await numbered(72, self.bob).insert(session=session)
            await numbered(70, self.bob).insert(session=session)

        for name, body in (("commits", commit), ("throws", fail), ("has a number of another", duplicate)):
            await step(f"a transaction that {name}", lambda: self._in_transaction(body))
        await step("transacted", everything)

    async def _in_transaction(self, body):
        async with self.client.start_session() as session:
            return await session.with_transaction(body)

    async def expire(self):
        def cart(number, customer, year):
            return numbered(number, customer, status=Status.CART, held_until=datetime(year, 1, 1, tzinfo=timezone.utc))

        await step("a cart that is held", cart(83, self.ada, 2099).insert)
        await Order.insert_many([cart(80, self.ada, 2026), cart(81, self.bob, 2026), cart(82, self.ada, 2026)])
        await step("carts are given up", self._carts)
        await step("a given up number again", numbered(80, self.ada).insert)

    async def _carts(self):
        carts = Order.find(Order.status == Status.CART)
        deadline = time.monotonic() + EXPIRY_LIMIT_S
        while await carts.count() > 1 and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        return await carts.to_list()

    async def remove(self):
        async def delete(number):
            return (await (await by_number(number)).delete()).deleted_count

        async def save_deleted():
            order = await by_number(24)
            await delete(24)
            return await order.replace()

        await step("delete", lambda: delete(23))
        await step("its number again", numbered(23, self.bob).insert)
        await step("replace what was deleted", save_deleted)
        await step("delete one", self._deleted(Order.find_one(Order.number == "A-0025")))
        await step("delete all", self._deleted(Order.find(Order.status == Status.CANCELLED)))
        await step("left", everything)

    @staticmethod
    def _deleted(query):
        async def run():
            return (await query.delete()).deleted_count

        return run


async def main():
    client = AsyncMongoClient(sys.argv[1], tz_aware=True)
    shop = Shop(client)
    for part in (shop.open, shop.place, shop.browse, shop.change, shop.transact, shop.expire, shop.remove):
        await part()
    await client.close()


asyncio.run(main())
