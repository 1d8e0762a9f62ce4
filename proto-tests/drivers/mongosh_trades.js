// A person's script for mongosh: inserts trades, pages through them, counts them, prints all it sees as canonical JSON.
//
// mongosh is given a connection string that names the database; the script must not be able to tell whom it talks to.

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

function show(what, value) {
  print(what, JSON.stringify(sorted(EJSON.serialize(value, { relaxed: false }))));
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

for (let number = 0; number < 5; number += 1) {
  show("inserted", db.trades.insertOne(trade(number)).insertedId);
}
const rest = Array.from({ length: 20 }, (_, number) => trade(number + 5));
show("inserted", Object.values(db.trades.insertMany(rest).insertedIds));

for (const customerId of [123, 456, 789]) {
  for (const page of [1, 2, 3]) {
    show(`page ${page} of ${customerId}`, db.trades.find({ customerId }).skip(10 * (page - 1)).limit(10).toArray());
  }
  show(`count of ${customerId}`, db.trades.countDocuments({ customerId }));
  show(`all of ${customerId}`, db.trades.find({ customerId }).batchSize(7).toArray());
}

show("first", db.trades.findOne({ customerId: 456 }, { _id: 0 }));
show("latest", db.trades.find({ customerId: 123 }).sort({ date: -1 }).limit(3).toArray());
show("large sells", db.trades.find({ type: "sell", quantity: { $gte: 150 } }).sort({ _id: 1 }).toArray());
show("count", db.trades.countDocuments({}));
show("estimated count", db.trades.estimatedDocumentCount());
