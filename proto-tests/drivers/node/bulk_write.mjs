// An application that writes to two collections at once by the driver's `MongoClient.bulkWrite` (MongoDB 8.0).
//
// Each operation is executed on both collections. A line begins with the name of the collection that it is about: one is
// shaped, and the other is plain.

import { BSON, MongoClient, MongoClientBulkWriteError } from "mongodb";

const COLLECTIONS = ["trades", "plain"];

const client = new MongoClient(process.argv[2]);
const database = client.db();

function show(collection, step, value) {
  console.log(collection, step, BSON.EJSON.stringify(value, { relaxed: false }));
}

function trade(number) {
  return {
    _id: number,
    customerId: number % 3,
    quantity: 10 * number,
    date: new Date(Date.UTC(2023, 9, 26, 15, 47 + number, 3, 434)),
  };
}

function outcome(index, result, errors) {
  if (errors.has(index)) return { code: errors.get(index).code };
  if (result.insertResults.has(index)) return { inserted: result.insertResults.get(index).insertedId };
  if (result.updateResults.has(index)) {
    const { matchedCount, modifiedCount, upsertedId } = result.updateResults.get(index);
    return { matched: matchedCount, modified: modifiedCount, upserted: upsertedId ?? null };
  }
  return { deleted: result.deleteResults.get(index).deletedCount };
}

async function bulk(step, operations, ordered = true) {
  const namespaces = COLLECTIONS.map((collection) => `${database.databaseName}.${collection}`);
  const models = operations.flatMap((operation) => namespaces.map((namespace) => ({ ...operation, namespace })));
  let errors = new Map();
  let result;
  try {
    result = await client.bulkWrite(models, { ordered, verboseResults: true });
  } catch (error) {
    if (!(error instanceof MongoClientBulkWriteError)) throw error;
    errors = error.writeErrors;
    result = error.partialResult;
  }
  const counts = [result.insertedCount, result.matchedCount, result.modifiedCount, result.upsertedCount, result.deletedCount];
  for (const [position, collection] of COLLECTIONS.entries()) {
    show(collection, step, operations.map((_, number) => outcome(number * COLLECTIONS.length + position, result, errors)));
    show(collection, "documents", await database.collection(collection).find().sort({ _id: 1 }).toArray());
    show(collection, `counts of ${step}`, counts.map((count) => count / COLLECTIONS.length));
  }
}

const inserts = Array.from({ length: 12 }, (_, number) => ({ name: "insertOne", document: trade(number) }));
await bulk("insert", inserts);
await bulk("ordered", [
  { name: "updateOne", filter: { _id: 1 }, update: { $inc: { quantity: 5 } } },
  { name: "updateMany", filter: { customerId: 2 }, update: { $set: { state: "open" } } },
  { name: "replaceOne", filter: { _id: 3 }, replacement: { ...trade(3), quantity: -1 } },
  { name: "updateOne", filter: { _id: 20 }, update: { $setOnInsert: trade(20) }, upsert: true },
  { name: "updateOne", filter: { _id: 99 }, update: { $inc: { quantity: 1 } } },
  { name: "deleteOne", filter: { _id: 4 } },
  { name: "deleteMany", filter: { customerId: 0, quantity: { $gt: 60 } } },
]);
const failing = [
  { name: "insertOne", document: trade(1) },
  { name: "insertOne", document: trade(30) },
  { name: "updateOne", filter: { _id: 30 }, update: { $inc: { date: 1 } } },
  { name: "deleteOne", filter: { _id: 5 } },
];
await bulk("unordered", failing, false);
await client.close();
