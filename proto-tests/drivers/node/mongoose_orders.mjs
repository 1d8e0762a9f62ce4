// A shop on Mongoose, which prints all it sees: `mongoose_orders.mjs <connection string>`.
//
// The connection string names a database, which is empty, on a replica set or a mongos. The shop must not be able to tell whom it talks to.

import { setTimeout as sleep } from "node:timers/promises";
import mongoose from "mongoose";
import { Customer, Order, numbered } from "./mongoose_shop.mjs";
import { counts, step } from "./mongoose_transcript.mjs";

const EXPIRY_LIMIT_MS = 90_000;

let ada;
let bob;

const byNumber = (number) => Order.findOne({ number: `A-${String(number).padStart(4, "0")}` });
const all = () => Order.find().sort("number");

async function open() {
  await step("init", async () => Object.keys(await Promise.all([Order.init(), Customer.init()])));
  await step("listIndexes", async () => (await Order.listIndexes()).map(({ name, key, unique, expireAfterSeconds }) => ({ name, key, unique, expireAfterSeconds })));
  await step("syncIndexes", () => Order.syncIndexes());
  await step("diffIndexes", () => Order.diffIndexes());
  await step("customers", async () => {
    [ada, bob] = await Customer.create([{ email: "Ada@example.com", name: "Ada" }, { email: "bob@example.com", name: "Bob" }], { ordered: true });
  });
  await step("a customer again", () => Customer.create({ email: "ada@example.com", name: "Adele" }));
}

async function place() {
  await step("create", () => Order.create(numbered(0, ada)));
  await step("save", () => new Order(numbered(1, bob)).save());
  await step("insertMany", async () => (await Order.insertMany(Array.from({ length: 43 }, (_, more) => numbered(2 + more, more % 3 === 0 ? bob : ada)))).length);
  await step("without lines' SKU", () => Order.create(numbered(50, ada, { lines: [{ quantity: 1 }] })));
  await step("number of the same customer", () => Order.create(numbered(0, ada)));
  await step("number of another customer", () => Order.create(numbered(0, bob)));
  await step("numbers of others", () => Order.insertMany([numbered(46, ada), numbered(1, ada), numbered(47, ada)]));
  await step("numbers of others, unordered", () => Order.insertMany([numbered(48, ada), numbered(2, ada), numbered(49, bob)], { ordered: false }));
  await step("a number twice", () => Order.insertMany([numbered(51, ada), numbered(51, bob)]));
  await step("a customer's number twice", () => Order.insertMany([numbered(52, ada), numbered(52, ada)], { ordered: false }));
  await step("placed", () => all());
}

async function browse() {
  for (const page of [1, 2, 3, 4]) await step(`page ${page}`, () => Order.pageOf(ada, page));
  await step("page 1 of the other", () => Order.pageOf(bob, 1).lean());
  await step("by number", () => byNumber(7));
  await step("by number of nobody", () => byNumber(700));
  await step("by id", async () => Order.findById((await byNumber(8))._id).select("number total"));
  await step("by SKU", () => Order.find({ customer: ada, lines: { $elemMatch: { sku: "S3", quantity: { $gte: 2 } } } }).sort("placedAt"));
  await step("in a month", () => Order.find({ customer: ada, placedAt: { $gte: new Date(Date.UTC(2026, 0, 20)), $lt: new Date(Date.UTC(2026, 1, 5)) } }).sort("placedAt"));
  await step("countDocuments", () => Order.countDocuments({ customer: ada, status: "placed" }));
  await step("estimatedDocumentCount", () => Order.estimatedDocumentCount());
  await step("exists", async () => (await Order.exists({ customer: bob, "lines.sku": "S9" })) === null);
  await step("distinct", async () => (await Order.distinct("lines.sku", { customer: bob })).sort());
  await step("populate", () => byNumber(5).populate("customer", "name"));
  await step("populate all", () => Order.find({ "lines.sku": "S1" }).sort("-placedAt").limit(4).populate("customer"));
  await step("populate a virtual", () => Customer.find().sort("email").populate("orders"));
  await step("cursor", async () => {
    const seen = [];
    for await (const { number } of Order.find({ status: "placed" }).sort("number").batchSize(6).cursor()) seen.push(number);
    return seen;
  });
  await step("sales by customer", () => Order.aggregate()
    .unwind("lines").group({ _id: "$customer", sold: { $sum: { $multiply: ["$lines.quantity", "$lines.price"] } }, orders: { $addToSet: "$number" } })
    .lookup({ from: "customers", localField: "_id", foreignField: "_id", as: "customer" })
    .project({ _id: 0, name: { $first: "$customer.name" }, sold: 1, orders: { $size: "$orders" } }).sort("name"));
  await step("sales by week", () => Order.aggregate([
    { $match: { customer: ada._id } },
    { $group: { _id: { $dateTrunc: { date: "$placedAt", unit: "week" } }, n: { $sum: 1 }, last: { $max: "$number" } } }, { $sort: { _id: 1 } }]));
  await step("a facet", () => Order.aggregate([{ $facet: { byStatus: [{ $sortByCount: "$status" }], newest: [{ $sort: { number: -1 } }, { $limit: 2 }, { $project: { number: 1 } }] } }]));
}

async function change() {
  await step("pay", async () => (await byNumber(3)).pay());
  await step("save what another has saved", async () => {
    const [mine, yours] = [await byNumber(4), await byNumber(4)];
    mine.lines[0].quantity = 9;
    await mine.save();
    yours.status = "cancelled";
    return yours.save();
  });
  await step("save a number that another has", async () => {
    const order = await byNumber(5);
    order.number = "A-0006";
    return order.save();
  });
  await step("save a new number", async () => {
    const order = await byNumber(5);
    order.number = "B-0005";
    return order.save();
  });
  await step("the old number again", () => Order.create(numbered(5, bob)));
  await step("findOneAndUpdate", () => Order.findOneAndUpdate({ customer: ada, status: "placed" }, { $set: { status: "sent" }, $inc: { __v: 1 } }, { sort: { placedAt: 1 }, returnDocument: "after" }));
  await step("findOneAndUpdate to a number that another has", () => Order.findOneAndUpdate({ number: "A-0009" }, { number: "A-0010" }));
  await step("findOneAndUpdate of nobody", () => Order.findOneAndUpdate({ number: "none" }, { status: "paid" }));
  await step("updateOne, an element", () => Order.updateOne({ number: "A-0011", "lines.sku": "S4" }, { $set: { "lines.$.quantity": 7 } }));
  await step("updateOne, array filters", () => Order.updateOne({ number: "A-0014" }, { $inc: { "lines.$[cheap].price": 1 } }, { arrayFilters: [{ "cheap.price": { $lt: 50 } }] }));
  await step("updateOne, push and pull", async () => [
    await Order.updateOne({ number: "A-0012" }, { $push: { lines: { sku: "S9", quantity: 1, price: 1 } } }),
    await Order.updateOne({ number: "A-0012" }, { $pull: { lines: { quantity: { $gt: 1 } } } })]);
  await step("updateMany", () => Order.updateMany({ customer: bob, status: "placed" }, { status: "paid" }));
  await step("updateMany with a pipeline", () => Order.updateMany({ status: "sent" }, [{ $set: { note: { $concat: ["$number", ": ", "$status"] } } }], { updatePipeline: true }));
  await step("upsert", () => Order.findOneAndUpdate({ number: "C-0001" }, { $set: { status: "paid" }, $setOnInsert: { customer: bob, placedAt: new Date(Date.UTC(2026, 3, 1)) } }, { upsert: true, returnDocument: "after" }));
  await step("upsert again", () => Order.updateOne({ number: "C-0001" }, { status: "sent" }, { upsert: true }));
  await step("replace", () => Order.findOneAndReplace({ number: "A-0013" }, numbered(13, ada, { status: "cancelled", lines: [] }), { returnDocument: "after" }));
  await step("to another customer", async () => {
    const order = await byNumber(15);
    order.customer = bob;
    return order.save();
  });
  await step("bulkWrite", async () => counts(await Order.bulkWrite([
    { insertOne: { document: numbered(60, ada) } },
    { updateOne: { filter: { number: "A-0016" }, update: { status: "sent" } } },
    { updateMany: { filter: { "lines.sku": "S2" }, update: { $set: { note: "S2" } } } },
    { deleteOne: { filter: { number: "A-0017" } } }])));
  await step("bulkWrite of a number that another has", () => Order.bulkWrite([
    { insertOne: { document: numbered(61, ada) } }, { insertOne: { document: numbered(60, bob) } }, { insertOne: { document: numbered(62, ada) } }], { ordered: false }));
  await step("bulkSave", async () => {
    const orders = await Order.pageOf(ada, 2);
    for (const order of orders) order.status = "cancelled";
    return counts(await Order.bulkSave(orders));
  });
  await step("changed", () => all());
}

async function transact() {
  await step("transaction", () => mongoose.connection.transaction(async (session) => {
    const [order] = await Order.create([numbered(70, ada)], { session });
    await order.pay(session);
    await Order.updateOne({ number: "A-0020" }, { status: "cancelled" }, { session });
    await Customer.updateOne({ _id: ada }, { $inc: { paid: 1 } }, { session, strict: false });
    return (await Order.find({ status: "paid", customer: ada }).session(session)).length;
  }));
  await step("transaction that throws", () => mongoose.connection.transaction(async (session) => {
    await Order.create([numbered(71, ada)], { session });
    await Order.deleteMany({ customer: bob }, { session });
    throw new Error("out of stock");
  }));
  await step("transaction with a number that another has", () => mongoose.connection.transaction(async (session) => {
    await Order.create([numbered(72, bob)], { session });
    await Order.create([numbered(70, bob)], { session });
  }));
  await step("withTransaction", () => mongoose.startSession().then(async (session) => {
    await session.withTransaction(() => Order.findOneAndUpdate({ number: "A-0021" }, { status: "sent" }, { session }));
    await session.endSession();
  }));
  await step("transacted", () => all());
}

async function expire() {
  const past = new Date(Date.UTC(2026, 0, 1));
  await step("carts", async () => (await Order.insertMany([80, 81, 82].map((number) => numbered(number, number % 2 ? ada : bob, { status: "cart", heldUntil: past })))).length);
  await step("a cart that is held", () => Order.create(numbered(83, ada, { status: "cart", heldUntil: new Date(Date.UTC(2099, 0, 1)) })));
  await step("carts are given up", async () => {
    const deadline = Date.now() + EXPIRY_LIMIT_MS;
    while (Date.now() < deadline && (await Order.countDocuments({ status: "cart" })) > 1) await sleep(200);
    return Order.find({ status: "cart" });
  });
  await step("a given up number again", () => Order.create(numbered(80, ada)));
}

async function remove() {
  await step("deleteOne", () => Order.deleteOne({ number: "A-0022" }));
  await step("deleteOne of a document", async () => (await byNumber(23)).deleteOne());
  await step("its number again", () => Order.create(numbered(23, bob)));
  await step("findOneAndDelete", () => Order.findOneAndDelete({ customer: ada }, { sort: { placedAt: -1 } }));
  await step("deleteMany", () => Order.deleteMany({ status: "cancelled" }));
  await step("left", () => all());
}

await mongoose.connect(process.argv[2]);
for (const part of [open, place, browse, change, transact, expire, remove]) await part();
await mongoose.disconnect();
