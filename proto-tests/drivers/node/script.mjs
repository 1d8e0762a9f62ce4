// The script that every driver runs, on the Node.js driver: `script.mjs <connection string> <database>`.

import { setTimeout } from "node:timers/promises";
import { BSON, Long, MongoClient, MongoError } from "mongodb";

const FACTS = ["maxWireVersion", "maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize", "logicalSessionTimeoutMinutes", "readOnly"];
const LARGE = "x".repeat(5_000_000);
const PADDING = "y".repeat(500);
const MANY = 20_000;

function show(step, value) {
  console.log(step, BSON.EJSON.stringify(value ?? null, { relaxed: false }));
}

function pick(value, names) {
  return Object.fromEntries(names.filter((name) => name in value).map((name) => [name, value[name]]));
}

// What an application can tell of an error. What has no code came from a socket, and names a port.
function failure(error) {
  const shown = { error: error.constructor.name, labels: [...error.errorLabels].sort() };
  if (error.code === undefined) return shown;
  Object.assign(shown, { code: error.code, codeName: error.codeName ?? null, message: error.errmsg ?? error.message });
  if (error.writeErrors) {
    const each = [error.writeErrors].flat().map(({ index, code, errmsg }) => ({ index, code, errmsg }));
    Object.assign(shown, { writeErrors: each }, counts(error.result));
  }
  return shown;
}

async function attempt(step, running, shown = (value) => value) {
  try {
    show(step, shown(await running));
  } catch (error) {
    if (!(error instanceof MongoError)) throw error;
    show(step, failure(error));
  }
}

function counts(result) {
  return pick(result, ["insertedCount", "matchedCount", "modifiedCount", "deletedCount", "upsertedCount", "upsertedIds"]);
}

function updated(result) {
  return pick(result, ["matchedCount", "modifiedCount", "upsertedId"]);
}

function event(change) {
  return pick(change, ["operationType", "ns", "documentKey", "fullDocument", "updateDescription"]);
}

function item(number) {
  return {
    _id: number,
    group: number % 5,
    name: `item ${number}`,
    price: number * 0.25,
    large: Long.fromNumber(number * 10_000_000_000),
    at: new Date(Date.UTC(2023, 9, 26, 15, 47 + number, 3, 434)),
    tags: [number % 2 === 0 ? "even" : "odd", `g${number % 5}`],
  };
}

function items(from, to) {
  return Array.from({ length: to - from }, (_, number) => item(from + number));
}

// The server closes the connection on the next such command of this application.
async function failOnce(client, database, command) {
  const data = { failCommands: [command], closeConnection: true, appName: database.databaseName };
  const running = client.db("admin").command({ configureFailPoint: "failCommand", mode: { times: 1 }, data });
  await attempt(`fail ${command}`, running, (reply) => reply.ok);
}

async function writes(collection) {
  show("insertOne", (await collection.insertOne(item(0))).insertedId);
  show("insertMany", Object.values((await collection.insertMany(items(1, 100))).insertedIds));
  await attempt("duplicate", collection.insertOne(item(0)));
  const mixed = () => [
    { insertOne: { document: item(200) } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { bulk: true } } } },
    { replaceOne: { filter: { _id: 2 }, replacement: { ...item(2), bulk: true } } },
    { updateOne: { filter: { _id: 210 }, update: { $set: { bulk: true } }, upsert: true } },
    { deleteOne: { filter: { _id: 3 } } },
    { insertOne: { document: item(0) } },
    { insertOne: { document: item(201) } },
  ];
  await attempt("bulkWrite ordered", collection.bulkWrite(mixed()), counts);
  await attempt("bulkWrite unordered", collection.bulkWrite(mixed(), { ordered: false }), counts);
  const good = [
    { insertOne: { document: item(202) } },
    { deleteOne: { filter: { _id: 202 } } },
    { updateOne: { filter: { _id: 4 }, update: { $inc: { group: 10 } } } },
  ];
  await attempt("bulkWrite", collection.bulkWrite(good), counts);
  show("updateOne", updated(await collection.updateOne({ _id: 5 }, { $set: { name: "five" }, $push: { tags: "new" } })));
  show("updateMany", updated(await collection.updateMany({ group: 1 }, [{ $set: { price: { $add: ["$price", 1] } } }])));
  show("replaceOne", updated(await collection.replaceOne({ _id: 6 }, { group: 6 })));
  show("upsert", updated(await collection.updateOne({ _id: 220 }, { $set: { group: 7 } }, { upsert: true })));
  const after = { returnDocument: "after" };
  show("findOneAndUpdate", await collection.findOneAndUpdate({ _id: 7 }, { $inc: { group: 1 } }, after));
  show("findOneAndReplace", await collection.findOneAndReplace({ _id: 8 }, { group: 8 }, { projection: { tags: 0 } }));
  show("findOneAndDelete", await collection.findOneAndDelete({ group: 4 }, { sort: { _id: -1 } }));
  show("deleteOne", (await collection.deleteOne({ _id: 220 })).deletedCount);
  show("deleteMany", (await collection.deleteMany({ _id: { $gte: 200 } })).deletedCount);
}

async function ids(cursor) {
  const found = [];
  for await (const one of cursor) found.push(one._id);
  return found;
}

async function reads(collection) {
  const projection = { name: 1, at: 1 };
  const found = collection.find({ group: { $lt: 3 } }, { projection }).sort({ price: -1 }).skip(5).limit(4);
  show("find", await found.toArray());
  show("findOne", await collection.findOne({ _id: "none" }));
  show("batches", await ids(collection.find({}, { batchSize: 7 }).sort({ _id: 1 })));
  const cursor = collection.find({}, { batchSize: 5 }).sort({ _id: 1 });
  const first = [];
  while (first.length < 7) first.push((await cursor.next())._id);
  await cursor.close();
  show("closed early", first);
  const collation = { locale: "en", numericOrdering: true };
  show("collation", await ids(collection.find({ _id: { $lt: 30 } }, { collation }).sort({ name: 1 })));
  const byGroup = [{ $group: { _id: "$group", price: { $sum: "$price" }, count: { $sum: 1 } } }, { $sort: { _id: 1 } }];
  show("aggregate", await collection.aggregate(byGroup).toArray());
  const tagged = collection.aggregate([{ $unwind: "$tags" }, { $sort: { _id: 1, tags: 1 } }], { batchSize: 7 });
  show("aggregate in batches", (await tagged.toArray()).map(({ _id, tags }) => [_id, tags]));
  show("distinct", (await collection.distinct("tags")).sort());
  show("countDocuments", await collection.countDocuments({ group: 2 }));
  show("estimatedDocumentCount", await collection.estimatedDocumentCount());
}

async function administration(client, database, collection) {
  show("createIndex", await collection.createIndex({ group: 1, at: -1 }, { name: "page" }));
  await attempt("createIndex again", collection.createIndex({ group: 1 }, { name: "page" }));
  show("listIndexes", (await collection.listIndexes().toArray()).map(({ name, key }) => [name, key]));
  show("hint", await ids(collection.find({ group: 2 }, { hint: "page" })));
  show("dropIndex", (await collection.dropIndex("page")).ok);
  await attempt("no such command", database.command({ noSuchCommand: 1 }));
  await attempt("bad filter", collection.findOne({ group: { $nothing: 1 } }));
  const name = (created) => created.collectionName;
  await attempt("create", database.createCollection("checked", { validator: { size: { $gt: 0 } } }), name);
  await attempt("create again", database.createCollection("checked", { capped: true, size: 4096 }), name);
  await attempt("validator", database.collection("checked").insertOne({ _id: 1, size: 0 }));
  show("listCollections", (await database.listCollections().toArray()).map(({ name }) => name).sort());
  const { databases } = await client.db("admin").admin().listDatabases({ nameOnly: true });
  show("listDatabases", databases.some(({ name }) => name === database.databaseName));
}

async function large(database) {
  const [large, many] = [database.collection("large"), database.collection("many")];
  show("large document", (await large.insertOne({ _id: 1, text: LARGE })).insertedId);
  show("large document read", (await large.findOne({ _id: 1 })).text === LARGE);
  const documents = Array.from({ length: MANY }, (_, number) => ({ _id: number, text: PADDING }));
  show("large bulk", (await many.insertMany(documents)).insertedCount);
  show("large bulk read", (await ids(many.find())).reduce((sum, id) => sum + id));
  show("large bulk deleted", (await many.deleteMany({})).deletedCount);
}

async function unacknowledged(database) {
  const quiet = database.collection("quiet");
  const inserted = [1, 1].map((_id) => quiet.insertOne({ _id }, { writeConcern: { w: 0 } }));
  show("unacknowledged", (await Promise.all(inserted)).map(({ acknowledged }) => acknowledged));
  const deadline = Date.now() + 20_000;
  let found = null;
  while ((found = await quiet.findOne()) === null && Date.now() < deadline) await setTimeout(10);
  show("unacknowledged read", found);
}

async function sessions(client, database, collection) {
  const said = database.collection("said");
  await client.withSession({ causalConsistency: true }, async (session) => {
    await said.insertOne({ _id: 1 }, { session });
    show("session", [await said.findOne({}, { session }), session.operationTime !== undefined]);
  });
  await failOnce(client, database, "find");
  await attempt("retried read", collection.findOne({ _id: 9 }));
  await failOnce(client, database, "insert");
  await attempt("retried write", said.insertOne({ _id: 2 }));
  show("retried write read", await said.countDocuments({}));
}

async function transactions(client, database, collection) {
  const added = { _id: { $gte: 300 } };
  await client.withSession(async (session) => {
    session.startTransaction();
    await collection.insertMany([item(300), item(301)], { session });
    await collection.updateOne({ _id: 10 }, { $set: { name: "ten" } }, { session });
    const inside = await collection.find(added, { session, batchSize: 1 }).toArray();
    show("transaction", [inside.length, await collection.countDocuments(added)]);
    await session.commitTransaction();
    show("committed", [await collection.countDocuments(added), (await collection.findOne({ _id: 10 })).name]);
    session.startTransaction();
    show("aborted", (await collection.deleteMany(added, { session })).deletedCount);
    await session.abortTransaction();
    show("after abort", await collection.countDocuments(added));
    session.startTransaction();
    await attempt("duplicate in transaction", collection.insertOne(item(300), { session }));
    await session.abortTransaction();
    await failOnce(client, database, "commitTransaction");
    const transferred = await session.withTransaction(async () => {
      await collection.updateOne({ _id: 11 }, { $inc: { group: 100 } }, { session });
      return (await collection.findOne({ _id: 11 }, { session })).group;
    });
    show("withTransaction", transferred);
    show("withTransaction read", (await collection.findOne({ _id: 11 })).group);
  });
}

async function conflict(client, collection) {
  const [first, second] = [client.startSession(), client.startSession()];
  first.startTransaction();
  second.startTransaction();
  await collection.updateOne({ _id: 12 }, { $set: { name: "first" } }, { session: first });
  await attempt("write conflict", collection.updateOne({ _id: 12 }, { $set: { name: "second" } }, { session: second }));
  await second.abortTransaction();
  await first.commitTransaction();
  await Promise.all([first.endSession(), second.endSession()]);
  show("write conflict read", (await collection.findOne({ _id: 12 })).name);
}

async function concerns(client, collection) {
  const majority = { readConcern: { level: "majority" }, writeConcern: { w: "majority" } };
  await client.withSession({ causalConsistency: true }, async (session) => {
    const written = await collection.updateOne({ _id: 13 }, { $set: { name: "thirteen" } }, { ...majority, session });
    show("majority", updated(written));
    const anywhere = { readConcern: majority.readConcern, readPreference: "secondaryPreferred", session };
    show("secondaryPreferred", (await collection.findOne({ _id: 13 }, anywhere)).name);
    show("secondaryPreferred batches", (await ids(collection.find({}, { ...anywhere, batchSize: 7 }))).length);
  });
  const linearizable = { readConcern: { level: "linearizable" } };
  show("linearizable", (await collection.findOne({ _id: 13 }, linearizable)).name);
  await client.withSession({ snapshot: true }, async (session) => {
    const before = await collection.countDocuments({}, { session });
    await collection.insertOne(item(310), majority);
    show("snapshot", (await collection.countDocuments({}, { session })) - before);
  });
}

async function changes(database) {
  const watched = database.collection("watched");
  const stream = watched.watch([], { fullDocument: "updateLookup", maxAwaitTimeMS: 500 });
  show("change stream", await stream.tryNext());
  await watched.insertOne(item(1));
  await watched.updateOne({ _id: 1 }, { $set: { name: "one" }, $unset: { price: 1 } });
  await watched.insertOne({ _id: 2 });
  await watched.deleteOne({ _id: 2 });
  const seen = [];
  while (seen.length < 4) seen.push(await stream.next());
  show("changes", seen.map(event));
  await stream.close();
  const resumed = watched.watch([], { resumeAfter: seen[0]._id });
  show("resumed", event(await resumed.next()));
  await resumed.close();
}

async function onStandalone(client, database, collection) {
  await client.withSession(async (session) => {
    session.startTransaction();
    await attempt("transaction", collection.insertOne(item(300), { session }));
  });
  await attempt("change stream", database.collection("watched").watch().tryNext());
}

const [uri, name] = process.argv.slice(2);
const client = new MongoClient(uri, { appName: name });
const database = client.db(name);
const collection = database.collection("items");
await database.dropDatabase();
const hello = await client.db("admin").command({ hello: 1 });
const { version } = await client.db("admin").command({ buildInfo: 1 });
show("server", { version, ...pick(hello, FACTS) });
show("ping", (await client.db("admin").command({ ping: 1 })).ok);
await writes(collection);
await reads(collection);
await administration(client, database, collection);
await large(database);
await unacknowledged(database);
await sessions(client, database, collection);
if (hello.setName !== undefined || hello.msg === "isdbgrid") {
  await transactions(client, database, collection);
  await conflict(client, collection);
  await concerns(client, collection);
  await changes(database);
} else {
  await onStandalone(client, database, collection);
}
await database.dropDatabase();
await client.close();
