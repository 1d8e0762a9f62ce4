// The orders of a shop, on Express and Mongoose.

import express from "express";
import mongoose from "mongoose";

const PAGE_SIZE = 10;
// The status that an order must have before it gets another one.
const BEFORE = { paid: "placed", sent: "paid", cancelled: "placed" };

const line = new mongoose.Schema(
  {
    sku: { type: String, required: true },
    quantity: { type: Number, required: true, min: 1 },
    price: { type: Number, required: true, min: 0 },
  },
  { _id: false },
);

const orderSchema = new mongoose.Schema({
  number: { type: String, required: true, unique: true },
  customer: { type: String, required: true },
  placedAt: { type: Date, default: Date.now },
  status: { type: String, enum: ["placed", ...Object.keys(BEFORE)], default: "placed" },
  lines: { type: [line], validate: { validator: (lines) => lines.length > 0, message: "an order has a line" } },
});
orderSchema.index({ customer: 1, placedAt: -1 });
orderSchema.virtual("total").get(function total() {
  return this.lines.reduce((sum, { quantity, price }) => sum + quantity * price, 0);
});
orderSchema.set("toJSON", { virtuals: true, id: false, versionKey: false });
const Order = mongoose.model("Order", orderSchema);

const app = express();
app.use(express.json());

app.post("/orders", async (request, response) => {
  const { number, customer, placedAt, lines } = request.body;
  const order = await Order.create({ number, customer, placedAt, lines });
  response.status(201).json(order);
});

app.get("/orders/:number", async (request, response) => {
  response.json(await Order.findOne({ number: request.params.number }).orFail());
});

// Of the status `?status=`, the newest first, `?page=` from 1.
app.get("/customers/:id/orders", async (request, response) => {
  const page = Math.max(1, Number(request.query.page) || 1);
  const { status } = request.query;
  const filter = { customer: request.params.id, ...(status && { status: String(status) }) };
  const [orders, count] = await Promise.all([
    Order.find(filter)
      .sort({ placedAt: -1 })
      .skip((page - 1) * PAGE_SIZE)
      .limit(PAGE_SIZE),
    Order.countDocuments(filter),
  ]);
  response.json({ page, pages: Math.ceil(count / PAGE_SIZE), count, orders });
});

app.patch("/orders/:number", async (request, response) => {
  const { number } = request.params;
  const { status } = request.body;
  if (!Object.hasOwn(BEFORE, status)) return response.status(400).json({ error: `no such status: ${status}` });
  const before = { number, status: BEFORE[status] };
  const order = await Order.findOneAndUpdate(before, { status }, { returnDocument: "after" });
  if (order) return response.json(order);
  const { status: current } = await Order.findOne({ number }).select("status").orFail();
  response.status(409).json({ error: `the order is ${current}` });
});

// Only an order that is not paid can get another line.
app.post("/orders/:number/lines", async (request, response) => {
  const order = await Order.findOne({ number: request.params.number, status: "placed" }).orFail();
  order.lines.push(request.body);
  response.json(await order.save());
});

app.delete("/orders/:number", async (request, response) => {
  const { deletedCount } = await Order.deleteOne({ number: request.params.number, status: "cancelled" });
  response.status(deletedCount ? 204 : 404).end();
});

const amount = { $sum: { $multiply: ["$lines.quantity", "$lines.price"] } };

app.get("/customers/:id/totals", async (request, response) => {
  const totals = await Order.aggregate([
    { $match: { customer: request.params.id } },
    { $unwind: "$lines" },
    { $group: { _id: "$status", amount, numbers: { $addToSet: "$number" } } },
    { $project: { _id: 0, status: "$_id", amount: 1, orders: { $size: "$numbers" } } },
    { $sort: { status: 1 } },
  ]);
  response.json(totals);
});

app.get("/products", async (_request, response) => {
  const products = await Order.aggregate([
    { $match: { status: { $ne: "cancelled" } } },
    { $unwind: "$lines" },
    { $group: { _id: "$lines.sku", sold: { $sum: "$lines.quantity" }, amount } },
    { $sort: { amount: -1, _id: 1 } },
    { $limit: PAGE_SIZE },
  ]);
  response.json(products);
});

app.use((error, _request, response, next) => {
  if (error instanceof mongoose.Error.DocumentNotFoundError) return response.status(404).end();
  if (error instanceof mongoose.Error.ValidationError) return response.status(400).json({ error: error.message });
  if (error.code === 11000) return response.status(409).json({ error: "there is such an order", fields: error.keyValue });
  next(error);
});

await mongoose.connect(process.env.MONGODB_URI ?? "mongodb://127.0.0.1:27017/shop");
await Order.init();
app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
