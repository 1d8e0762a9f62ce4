// An application on Mongoose: keeps trades, and prints all it sees: `mongoose_model.mjs <connection string>`.
//
// The connection string names a database, which is empty. The application must not be able to tell whom it talks to.

import mongoose from "mongoose";
import { CarefulTrade, Customer, Trade, id, plain } from "./mongoose_schema.mjs";
import { counts, step } from "./mongoose_transcript.mjs";

const NOBODY = 999_999;

async function all(documents) {
  const seen = [];
  for await (const document of documents) seen.push(document);
  return seen;
}

async function begin() {
  await step("init", async () => Object.keys(await Promise.all([Trade, Customer, CarefulTrade].map((model) => model.init()))));
  await step("syncIndexes", () => Trade.syncIndexes());
  await step("listIndexes", async () => (await Trade.listIndexes()).map(({ name, key }) => ({ name, key })));
  await step("customers", () => Customer.insertMany([{ _id: 123, name: "Ada" }, { _id: 456, name: "Bob" }]));
}

async function create() {
  await step("create", () => Trade.create(plain(0)));
  await step("create many", () => Trade.create([plain(1), plain(2)], { ordered: true }));
  await step("new and save", () => new Trade({ ...plain(3), tags: ["x", "y", "x"], notes: [{ text: "one", by: "Ada" }] }).save());
  await step("insertMany", async () => (await Trade.insertMany(Array.from({ length: 36 }, (_, more) => plain(4 + more)))).length);
  await step("insertMany rawResult", async () => (await Trade.insertMany([plain(40), plain(41)], { rawResult: true })).insertedCount);
  await step("validation", () => Trade.create({ ...plain(50), type: "lend" }));
  await step("duplicate", () => Trade.create(plain(0)));
  await step("duplicates in insertMany", () => Trade.insertMany([plain(42), plain(1), plain(43)]));
  await step("duplicates in insertMany unordered", () => Trade.insertMany([plain(44), plain(1), plain(45)], { ordered: false }));
}

async function read() {
  await step("findById", () => Trade.findById(id(3)));
  await step("findById of a string", () => Trade.findById(id(3).toHexString()).lean());
  await step("findById of nobody", () => Trade.findById(id(NOBODY)));
  await step("findOne", () => Trade.findOne({ customerId: 456 }).sort({ date: -1 }).select("ticker quantity"));
  for (const customerId of [123, 456, 789]) {
    for (const page of [1, 2, 3]) await step(`page ${page} of ${customerId}`, () => Trade.page(customerId, page));
    await step(`countDocuments of ${customerId}`, () => Trade.countDocuments({ customerId }));
    await step(`exists ${customerId}`, async () => (await Trade.exists({ customerId, type: "buy" })) !== null);
  }
  await step("latest", () => Trade.find({ customerId: 123 }).sort("-date").limit(5).select("-notes").lean());
  await step("where", () => Trade.find().where("quantity").gte(150).lt(300).where("type").in(["sell"]).sort({ _id: 1 }));
  await step("or", () => Trade.find({ $or: [{ ticker: "MDB", quantity: { $gt: 380 } }, { notes: { $elemMatch: { by: "Ada" } } }] }).sort("_id"));
  await step("cursor", () => all(Trade.find({ customerId: 456 }).sort({ date: 1 }).batchSize(4).cursor()));
  await step("distinct", async () => (await Trade.distinct("ticker", { customerId: 123 })).sort());
  await step("countDocuments", () => Trade.countDocuments());
  await step("estimatedDocumentCount", () => Trade.estimatedDocumentCount());
  await step("aggregate", () => Trade.aggregate().match({ quantity: { $gte: 50 } })
    .group({ _id: { customerId: "$customerId", type: "$type" }, sum: { $sum: "$quantity" }, n: { $sum: 1 } }).sort("_id"));
  await step("populate", () => Trade.findById(id(5)).populate("customerId"));
  await step("populate a virtual", () => Customer.find().sort("_id").populate("latest"));
}

async function save() {
  await step("save after change", async () => {
    const trade = await Trade.findById(id(3));
    trade.quantity = 31;
    trade.settled = { at: new Date(Date.UTC(2023, 10, 1)), by: "Bob" };
    return trade.save();
  });
  await step("save of nothing", async () => (await Trade.findById(id(3))).save());
  await step("save of a push", async () => {
    const trade = await Trade.findById(id(3));
    trade.notes.push({ text: "two", by: "Bob" }, { text: "three" });
    return trade.save();
  });
  await step("save of an element", async () => {
    const trade = await Trade.findById(id(3));
    trade.notes[1].text = "second";
    return trade.save();
  });
  await step("save of a pull", async () => {
    const trade = await Trade.findById(id(3));
    trade.notes.pull({ text: "one" });
    trade.tags.addToSet("z");
    return trade.save();
  });
  await step("save of a whole array", async () => {
    const trade = await Trade.findById(id(3));
    trade.notes = [{ text: "only" }];
    return trade.save();
  });
  await step("save of what is gone from it", async () => {
    const trade = await Trade.findById(id(3));
    trade.settled.by = undefined;
    return trade.save();
  });
  await step("save of an old version", async () => {
    const [first, second] = [await Trade.findById(id(3)), await Trade.findById(id(3))];
    first.notes = [];
    await first.save();
    second.notes[0].text = "late";
    return second.save();
  });
  await step("save with its version", async () => {
    const trade = await CarefulTrade.findById(id(4));
    trade.quantity += 1;
    return trade.save();
  });
  await step("save with an old version", async () => {
    const [first, second] = [await CarefulTrade.findById(id(4)), await CarefulTrade.findById(id(4))];
    first.quantity += 1;
    await first.save();
    second.quantity += 5;
    return second.save();
  });
  await step("what is saved", () => Trade.find({ _id: { $in: [id(3), id(4)] } }).sort("_id"));
  await step("bulkSave", async () => {
    const trades = await Trade.find({ customerId: 456 }).sort({ date: 1 }).limit(3);
    for (const trade of trades) trade.quantity += 1;
    return counts(await Trade.bulkSave(trades));
  });
}

async function update() {
  await step("findByIdAndUpdate", () => Trade.findByIdAndUpdate(id(6), { quantity: 61, $push: { notes: { text: "six" } } }, { returnDocument: "after" }));
  await step("findByIdAndUpdate before", () => Trade.findByIdAndUpdate(id(6), { $inc: { quantity: 1 } }, { returnDocument: "before" }).select("quantity"));
  await step("findByIdAndUpdate of nobody", () => Trade.findByIdAndUpdate(id(NOBODY), { quantity: 1 }));
  await step("findByIdAndUpdate, validated", () => Trade.findByIdAndUpdate(id(6), { quantity: -1 }, { runValidators: true }));
  await step("findOneAndUpdate", () => Trade.findOneAndUpdate({ customerId: 123, ticker: "MDB" }, { $inc: { quantity: 2 } }, { sort: { date: -1 }, returnDocument: "after" }));
  await step("findOneAndReplace", () => Trade.findOneAndReplace({ _id: id(7) }, { ...plain(7), quantity: 77 }, { returnDocument: "after" }));
  await step("updateOne", () => Trade.updateOne({ _id: id(8) }, { $set: { quantity: 81 }, $addToSet: { tags: "eight" } }));
  await step("updateOne of a document", async () => (await Trade.findById(id(8))).updateOne({ $mul: { quantity: 2 } }));
  await step("updateOne by fields", () => Trade.updateOne({ customerId: 456, quantity: { $gte: 440 } }, { $set: { tags: ["large"] } }));
  await step("updateOne of nobody", () => Trade.updateOne({ _id: id(NOBODY) }, { quantity: 1 }));
  await step("updateMany", () => Trade.updateMany({ customerId: 123, type: "buy" }, { $inc: { quantity: 1000 } }));
  await step("updateMany of all", () => Trade.updateMany({}, { $set: { "settled.by": "Eve" } }));
  await step("updateMany with a pipeline", () => Trade.updateMany({ ticker: "GOOG" }, [{ $set: { quantity: { $add: ["$quantity", 1] } } }], { updatePipeline: true }));
  await step("what is updated", () => Trade.find().sort("_id"));
}

async function upsert() {
  const fields = (number) => {
    const { _id, ...rest } = plain(number);
    return rest;
  };
  const upserted = { upsert: true, returnDocument: "after" };
  await step("upsert that inserts", () => Trade.findOneAndUpdate({ _id: id(100) }, { $set: fields(100) }, { ...upserted, setDefaultsOnInsert: true }));
  await step("upsert that updates", () => Trade.findOneAndUpdate({ _id: id(100) }, { quantity: 1 }, upserted));
  await step("upsert by fields", () => Trade.findOneAndUpdate({ customerId: 123, ticker: "AAPL" }, { $set: { type: "buy", quantity: 7, date: plain(101).date }, $setOnInsert: { _id: id(101) } }, upserted));
  await step("updateOne that upserts", () => Trade.updateOne({ _id: id(102) }, { $setOnInsert: fields(102) }, { upsert: true }));
  await step("what is upserted", () => Trade.find({ _id: { $gte: id(100) } }).sort("_id"));
}

async function bulk() {
  const write = [
    { insertOne: { document: plain(200) } },
    { updateOne: { filter: { _id: id(200) }, update: { $set: { quantity: 201 } } } },
    { updateMany: { filter: { customerId: 456 }, update: { $inc: { quantity: 1 } } } },
    { replaceOne: { filter: { _id: id(11) }, replacement: { ...plain(11), quantity: 111 } } },
    { updateOne: { filter: { _id: id(202) }, update: { $set: { ...plain(202), _id: id(202) } }, upsert: true } },
    { deleteOne: { filter: { _id: id(12) } } },
    { deleteMany: { filter: { customerId: 123, quantity: { $lt: 150 } } } },
  ];
  await step("bulkWrite", async () => counts(await Trade.bulkWrite(write)));
  await step("bulkWrite of updates", async () => counts(await Trade.bulkWrite([13, 14, 15].map((number) => (
    { updateOne: { filter: { _id: id(number) }, update: { $inc: { quantity: 3 } } } })))));
  await step("bulkWrite with an error", () => Trade.bulkWrite([{ insertOne: { document: plain(16) } }, { insertOne: { document: plain(203) } }]));
  await step("bulkWrite with an error, unordered", () => Trade.bulkWrite(
    [{ insertOne: { document: plain(16) } }, { insertOne: { document: plain(203) } }], { ordered: false }));
  await step("what is written", () => Trade.find().sort("_id"));
}

// Something that has transactions.
async function ofSet() {
  const { setName, msg } = await mongoose.connection.db.command({ hello: 1 });
  return setName !== undefined || msg === "isdbgrid";
}

async function move() {
  // To put a document on another page takes a transaction.
  if (!(await ofSet())) return;
  await step("another time", async () => {
    const trade = await Trade.findById(id(10));
    trade.date = new Date(Date.UTC(2023, 9, 1));
    return trade.save();
  });
  await step("moved to another customer", () => Trade.findByIdAndUpdate(id(9), { customerId: 789 }, { returnDocument: "after" }));
  await step("what is moved", () => Trade.find({ customerId: 789 }));
}

async function transact() {
  if (!(await ofSet())) return;
  await step("transaction", () => mongoose.connection.transaction(async (session) => {
    const [made] = await Trade.create([plain(300)], { session });
    made.quantity = 301;
    await made.save();
    await Trade.updateOne({ _id: id(17) }, { $inc: { quantity: -1 } }, { session });
    await Trade.deleteOne({ _id: id(18) }, { session });
  }).then(() => "committed"));
  await step("transaction that fails", () => mongoose.connection.transaction(async (session) => {
    await Trade.create([plain(301)], { session });
    await Trade.create([plain(300)], { session });
  }));
  await step("what is committed", () => Trade.find({ _id: { $in: [17, 18, 300, 301].map(id) } }).sort("_id"));
}

async function remove() {
  await step("deleteOne", () => Trade.deleteOne({ _id: id(20) }));
  await step("deleteOne again", () => Trade.deleteOne({ _id: id(20) }));
  await step("deleteOne of a document", async () => (await Trade.findById(id(21))).deleteOne());
  await step("save of what was deleted", async () => {
    const trade = await Trade.findById(id(22));
    await Trade.deleteOne({ _id: id(22) });
    trade.quantity = 1;
    return trade.save();
  });
  await step("deleteOne by fields", () => Trade.deleteOne({ ticker: "MDB", date: plain(34).date }));
  await step("findByIdAndDelete", () => Trade.findByIdAndDelete(id(23)));
  await step("findByIdAndDelete of nobody", () => Trade.findByIdAndDelete(id(NOBODY)));
  await step("findOneAndDelete", () => Trade.findOneAndDelete({ customerId: 456 }, { sort: { date: 1 } }).lean());
  await step("what is left", () => Trade.find().sort("_id"));
  await step("deleteMany of a customer", () => Trade.deleteMany({ customerId: 456 }));
  for (const customerId of [123, 456]) {
    await step(`page 1 of ${customerId} then`, () => Trade.page(customerId, 1));
    await step(`countDocuments of ${customerId} then`, () => Trade.countDocuments({ customerId }));
  }
  await step("create again", () => Trade.create(plain(20)));
  await step("deleteMany of some", () => Trade.deleteMany({ $or: [{ quantity: { $gt: 1000 } }, { ticker: "MDB", type: "sell" }] }));
  await step("what is left then", () => Trade.find().sort("_id"));
}

await mongoose.connect(process.argv[2]);
for (const part of [begin, create, read, save, update, move, upsert, bulk, transact, remove]) await part();
await mongoose.disconnect();
