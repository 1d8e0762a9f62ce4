// The models of a shop on Mongoose: customers and their orders.

import mongoose from "mongoose";

const { Schema } = mongoose;

const customer = new Schema({ email: { type: String, lowercase: true, required: true, unique: true }, name: String }, { collection: "customers", id: false });
customer.virtual("orders", { ref: "Order", localField: "_id", foreignField: "customer", options: { sort: { placedAt: -1 }, limit: 3 } });

const line = new Schema({ sku: { type: String, required: true }, quantity: { type: Number, min: 1 }, price: Number }, { _id: false });

const order = new Schema(
  {
    number: { type: String, required: true, unique: true },
    customer: { type: Schema.Types.ObjectId, ref: "Customer", required: true },
    placedAt: { type: Date, required: true },
    status: { type: String, enum: ["cart", "placed", "paid", "sent", "cancelled"], default: "placed", index: true },
    lines: [line],
    // A cart is given up when this has passed.
    heldUntil: { type: Date, expires: "1s" },
  },
  { collection: "orders", timestamps: true, optimisticConcurrency: true, id: false },
);
order.index({ customer: 1, placedAt: -1 });
order.index({ "lines.sku": 1 });
order.virtual("total").get(function total() {
  return this.lines?.reduce((sum, { quantity, price }) => sum + quantity * price, 0);
});
order.statics.pageOf = function pageOf(buyer, page, size = 10) {
  return this.find({ customer: buyer }).sort({ placedAt: -1 }).skip(size * (page - 1)).limit(size);
};
order.methods.pay = function pay(session) {
  this.status = "paid";
  return this.save({ session });
};

export const Customer = mongoose.model("Customer", customer);
export const Order = mongoose.model("Order", order);

export function numbered(number, buyer, more = {}) {
  const lines = Array.from({ length: 1 + (number % 3) }, (_, at) => ({ sku: `S${(number + at) % 7}`, quantity: 1 + at, price: 5 * (1 + (number % 4)) }));
  return { number: `A-${String(number).padStart(4, "0")}`, customer: buyer, placedAt: new Date(Date.UTC(2026, 0, 1 + number, 12)), lines, ...more };
}
