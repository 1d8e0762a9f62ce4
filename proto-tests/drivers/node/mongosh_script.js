// The script that every driver runs, as a person's mongosh script: `mongosh <connection string> --file mongosh_script.js`.
// The database's name is in `databaseName`, set by `--eval` before.

const FACTS = ["maxWireVersion", "maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize", "logicalSessionTimeoutMinutes", "readOnly"];
const LARGE = "x".repeat(5_000_000);
const PADDING = "y".repeat(500);
const MANY = 20_000;

const client = db.getMongo();
const database = client.getDB(databaseName);
const admin = client.getDB("admin");

function show(step, value) {
  print(step, EJSON.stringify(value ?? null, { relaxed: false }));
}

function pick(value, names) {
  return Object.fromEntries(names.filter((name) => name in value).map((name) => [name, value[name]]));
}

// What a person can tell of an error. What has no code came from a socket, and names a port.
function failure(error) {
  const shown = { error: error.name, labels: [...(error.errorLabels ?? [])].sort() };
  if (error.code === undefined) return shown;
  Object.assign(shown, { code: error.code, codeName: error.codeName ?? null, message: error.errmsg ?? error.message });
  if (error.writeErrors) {
    const each = [error.writeErrors].flat().map(({ index, code, errmsg }) => ({ index, code, errmsg }));
    Object.assign(shown, { writeErrors: each }, counts(error.result));
  }
  return shown;
}

function attempt(step, run) {
  try {
    show(step, run());
  } catch (error) {
    show(step, failure(error));
  }
}

function counts(result) {
  return pick(result, ["insertedCount", "matchedCount", "modifiedCount", "deletedCount", "upsertedCount", "upsertedIds"]);
}

function updated(result) {
  return pick(result, ["matchedCount", "modifiedCount", "upsertedCount", "insertedId"]);
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

function ids(cursor) {
  return cursor.toArray().map(({ _id }) => _id);
}

// The server closes the connection on the next such command of this application: mongosh sets its own name.
function failOnce(command) {
  const data = { failCommands: [command], closeConnection: true, appName: databaseName };
  attempt(`fail ${command}`, () => admin.runCommand({ configureFailPoint: "failCommand", mode: { times: 1 }, data }).ok);
}

function writes(collection) {
  show("insertOne", collection.insertOne(item(0)).insertedId);
  const items = Array.from({ length: 99 }, (_, number) => item(number + 1));
  show("insertMany", Object.values(collection.insertMany(items).insertedIds));
  attempt("duplicate", () => collection.insertOne(item(0)));
  const mixed = [
    { insertOne: { document: item(200) } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { bulk: true } } } },
    { replaceOne: { filter: { _id: 2 }, replacement: { ...item(2), bulk: true } } },
    { updateOne: { filter: { _id: 210 }, update: { $set: { bulk: true } }, upsert: true } },
    { deleteOne: { filter: { _id: 3 } } },
    { insertOne: { document: item(0) } },
    { insertOne: { document: item(201) } },
  ];
  attempt("bulkWrite ordered", () => counts(collection.bulkWrite(mixed)));
  attempt("bulkWrite unordered", () => counts(collection.bulkWrite(mixed, { ordered: false })));
  const good = [
    { insertOne: { document: item(202) } },
    { deleteOne: { filter: { _id: 202 } } },
    { updateOne: { filter: { _id: 4 }, update: { $inc: { group: 10 } } } },
  ];
  attempt("bulkWrite", () => counts(collection.bulkWrite(good)));
  show("updateOne", updated(collection.updateOne({ _id: 5 }, { $set: { name: "five" }, $push: { tags: "new" } })));
  show("updateMany", updated(collection.updateMany({ group: 1 }, [{ $set: { price: { $add: ["$price", 1] } } }])));
  show("replaceOne", updated(collection.replaceOne({ _id: 6 }, { group: 6 })));
  show("upsert", updated(collection.updateOne({ _id: 220 }, { $set: { group: 7 } }, { upsert: true })));
  const after = { returnDocument: "after" };
  show("findOneAndUpdate", collection.findOneAndUpdate({ _id: 7 }, { $inc: { group: 1 } }, after));
  show("findOneAndReplace", collection.findOneAndReplace({ _id: 8 }, { group: 8 }, { projection: { tags: 0 } }));
  show("findOneAndDelete", collection.findOneAndDelete({ group: 4 }, { sort: { _id: -1 } }));
  show("deleteOne", collection.deleteOne({ _id: 220 }).deletedCount);
  show("deleteMany", collection.deleteMany({ _id: { $gte: 200 } }).deletedCount);
}

function reads(collection) {
  const found = collection.find({ group: { $lt: 3 } }, { name: 1, at: 1 }).sort({ price: -1 }).skip(5).limit(4);
  show("find", found.toArray());
  show("findOne", collection.findOne({ _id: "none" }));
  show("batches", ids(collection.find().batchSize(7).sort({ _id: 1 })));
  const cursor = collection.find().batchSize(5).sort({ _id: 1 });
  const first = [];
  while (first.length < 7) first.push(cursor.next()._id);
  cursor.close();
  show("closed early", first);
  const collation = { locale: "en", numericOrdering: true };
  show("collation", ids(collection.find({ _id: { $lt: 30 } }).sort({ name: 1 }).collation(collation)));
  const byGroup = [{ $group: { _id: "$group", price: { $sum: "$price" }, count: { $sum: 1 } } }, { $sort: { _id: 1 } }];
  show("aggregate", collection.aggregate(byGroup).toArray());
  const tagged = collection.aggregate([{ $unwind: "$tags" }, { $sort: { _id: 1, tags: 1 } }], { cursor: { batchSize: 7 } });
  show("aggregate in batches", tagged.toArray().map(({ _id, tags }) => [_id, tags]));
  show("distinct", collection.distinct("tags").sort());
  show("countDocuments", collection.countDocuments({ group: 2 }));
  show("estimatedDocumentCount", collection.estimatedDocumentCount());
}

function administration(collection) {
  show("createIndex", collection.createIndex({ group: 1, at: -1 }, { name: "page" }));
  attempt("createIndex again", () => collection.createIndex({ group: 1 }, { name: "page" }));
  show("listIndexes", collection.getIndexes().map(({ name, key }) => [name, key]));
  show("hint", ids(collection.find({ group: 2 }).hint("page")));
  show("dropIndex", collection.dropIndex("page").ok);
  attempt("no such command", () => database.runCommand({ noSuchCommand: 1 }).ok);
  attempt("bad filter", () => collection.findOne({ group: { $nothing: 1 } }));
  attempt("create", () => database.createCollection("checked", { validator: { size: { $gt: 0 } } }).ok);
  attempt("create again", () => database.createCollection("checked", { capped: true, size: 4096 }).ok);
  attempt("validator", () => database.checked.insertOne({ _id: 1, size: 0 }));
  show("listCollections", database.getCollectionNames().sort());
  show("listDatabases", client.getDBNames().includes(databaseName));
}

function large() {
  show("large document", database.large.insertOne({ _id: 1, text: LARGE }).insertedId);
  show("large document read", database.large.findOne({ _id: 1 }).text === LARGE);
  const documents = Array.from({ length: MANY }, (_, number) => ({ _id: number, text: PADDING }));
  show("large bulk", Object.keys(database.many.insertMany(documents).insertedIds).length);
  show("large bulk read", ids(database.many.find()).reduce((sum, id) => sum + id));
  show("large bulk deleted", database.many.deleteMany({}).deletedCount);
}

function unacknowledged() {
  const quiet = () => database.quiet.insertOne({ _id: 1 }, { writeConcern: { w: 0 } }).acknowledged;
  show("unacknowledged", [quiet(), quiet()]);
  const deadline = Date.now() + 20_000;
  let found = null;
  while ((found = database.quiet.findOne()) === null && Date.now() < deadline) sleep(10);
  show("unacknowledged read", found);
}

function sessions(collection) {
  const session = client.startSession({ causalConsistency: true });
  const said = session.getDatabase(databaseName).said;
  said.insertOne({ _id: 1 });
  show("session", [said.findOne(), session.getOperationTime() !== undefined]);
  session.endSession();
  failOnce("find");
  attempt("retried read", () => collection.findOne({ _id: 9 }));
  failOnce("insert");
  attempt("retried write", () => database.said.insertOne({ _id: 2 }));
  show("retried write read", database.said.countDocuments({}));
}

function transactions(collection) {
  const added = { _id: { $gte: 300 } };
  const session = client.startSession();
  const inside = session.getDatabase(databaseName).items;
  session.startTransaction();
  inside.insertMany([item(300), item(301)]);
  inside.updateOne({ _id: 10 }, { $set: { name: "ten" } });
  show("transaction", [inside.find(added).batchSize(1).toArray().length, collection.countDocuments(added)]);
  session.commitTransaction();
  show("committed", [collection.countDocuments(added), collection.findOne({ _id: 10 }).name]);
  session.startTransaction();
  show("aborted", inside.deleteMany(added).deletedCount);
  session.abortTransaction();
  show("after abort", collection.countDocuments(added));
  session.startTransaction();
  attempt("duplicate in transaction", () => inside.insertOne(item(300)));
  session.abortTransaction();
  failOnce("commitTransaction");
  const transferred = session.withTransaction(() => {
    inside.updateOne({ _id: 11 }, { $inc: { group: 100 } });
    return inside.findOne({ _id: 11 }).group;
  });
  show("withTransaction", transferred);
  show("withTransaction read", collection.findOne({ _id: 11 }).group);
  session.endSession();
}

function conflict(collection) {
  const [first, second] = [client.startSession(), client.startSession()];
  first.startTransaction();
  second.startTransaction();
  first.getDatabase(databaseName).items.updateOne({ _id: 12 }, { $set: { name: "first" } });
  const lose = () => second.getDatabase(databaseName).items.updateOne({ _id: 12 }, { $set: { name: "second" } });
  attempt("write conflict", lose);
  second.abortTransaction();
  first.commitTransaction();
  first.endSession();
  second.endSession();
  show("write conflict read", collection.findOne({ _id: 12 }).name);
}

function concerns(collection) {
  const session = client.startSession({ causalConsistency: true });
  const safe = session.getDatabase(databaseName).items;
  const majority = { writeConcern: { w: "majority" } };
  show("majority", updated(safe.updateOne({ _id: 13 }, { $set: { name: "thirteen" } }, majority)));
  const anywhere = (filter) => safe.find(filter).readConcern("majority").readPref("secondaryPreferred");
  show("secondaryPreferred", anywhere({ _id: 13 }).next().name);
  show("secondaryPreferred batches", ids(anywhere({}).batchSize(7)).length);
  session.endSession();
  show("linearizable", collection.find({ _id: 13 }).readConcern("linearizable").next().name);
  const snapshot = client.startSession({ snapshot: true });
  const frozen = snapshot.getDatabase(databaseName).items;
  const before = frozen.countDocuments({});
  collection.insertOne(item(310), majority);
  show("snapshot", frozen.countDocuments({}) - before);
  snapshot.endSession();
}

function changes() {
  const watched = database.watched;
  const stream = watched.watch([], { fullDocument: "updateLookup", maxAwaitTimeMS: 500 });
  stream.disableBlockWarnings();
  show("change stream", stream.tryNext());
  watched.insertOne(item(1));
  watched.updateOne({ _id: 1 }, { $set: { name: "one" }, $unset: { price: 1 } });
  watched.insertOne({ _id: 2 });
  watched.deleteOne({ _id: 2 });
  const seen = [];
  while (seen.length < 4) seen.push(stream.next());
  show("changes", seen.map(event));
  stream.close();
  const resumed = watched.watch([], { resumeAfter: seen[0]._id });
  resumed.disableBlockWarnings();
  show("resumed", event(resumed.next()));
  resumed.close();
}

function onStandalone() {
  const session = client.startSession();
  session.startTransaction();
  attempt("transaction", () => session.getDatabase(databaseName).items.insertOne(item(300)));
  session.endSession();
  attempt("change stream", () => database.watched.watch().tryNext());
}

database.dropDatabase();
const hello = db.hello();
show("server", { version: db.version(), ...pick(hello, FACTS) });
show("ping", admin.runCommand({ ping: 1 }).ok);
writes(database.items);
reads(database.items);
administration(database.items);
large();
unacknowledged();
sessions(database.items);
if (hello.setName !== undefined || hello.msg === "isdbgrid") {
  transactions(database.items);
  conflict(database.items);
  concerns(database.items);
  changes();
} else {
  onStandalone();
}
database.dropDatabase();
