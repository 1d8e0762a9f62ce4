// An application on the Node driver: inserts trades, pages through them, counts them, prints all it sees as canonical JSON.
//
// It is given a connection string that names the database, and must not be able to tell whom it talks to.

import { BSON, MongoClient } from "mongodb";

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

function show(what, value) {
  console.log(what, JSON.stringify(sorted(BSON.EJSON.serialize(value, { relaxed: false }))));
}

function trade(number) {
  return {
    _id: number,
    ticker: number % 2 === 0 ? "MDB" : "GOOG",
    customerId: number % 5 < 3 ? 123 : 456,
    type: number % 3 === 0 ? "buy" : "sell",
    quantity: 10 * number,
    date: new Date(Date.UTC(2023, 9, 26, 15, 47 + number, 3, 434)),
  };
}

const client = new MongoClient(process.argv[2]);
const trades = client.db().collection("trades");

for (let number = 0; number < 5; number += 1) {
  show("inserted", (await trades.insertOne(trade(number))).insertedId);
}
const rest = Array.from({ length: 20 }, (_, number) => trade(number + 5));
show("inserted", Object.values((await trades.insertMany(rest)).insertedIds));

for (const customerId of [123, 456, 789]) {
  for (const page of [1, 2, 3]) {
    const found = trades.find({ customerId }).skip(10 * (page - 1)).limit(10);
    show(`page ${page} of ${customerId}`, await found.toArray());
  }
  show(`count of ${customerId}`, await trades.countDocuments({ customerId }));
  const all = [];
  for await (const item of trades.find({ customerId }, { batchSize: 7 })) all.push(item);
  show(`all of ${customerId}`, all);
}

show("first", await trades.findOne({ customerId: 456 }, { projection: { _id: 0 } }));
show("latest", await trades.find({ customerId: 123 }).sort({ date: -1 }).limit(3).toArray());
show("large sells", await trades.find({ type: "sell", quantity: { $gte: 150 } }).sort({ _id: 1 }).toArray());
show("count", await trades.countDocuments({}));
show("estimated count", await trades.estimatedDocumentCount());
await client.close();
