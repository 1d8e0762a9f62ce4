// The models of an application on Mongoose: trades, and the customers that they are of.

import mongoose from "mongoose";

const { Schema } = mongoose;

const note = new Schema({ text: { type: String, required: true }, by: String }, { _id: false });

const trade = new Schema(
  {
    customerId: { type: Number, required: true, ref: "Customer" },
    type: { type: String, enum: ["buy", "sell"], required: true },
    ticker: { type: String, uppercase: true, required: true },
    quantity: { type: Number, min: 0, required: true },
    date: { type: Date, required: true },
    tags: { type: [String], default: undefined },
    notes: [note],
    settled: { at: Date, by: String },
  },
  { collection: "trades", timestamps: true },
);
// Made when the application connects, as `autoIndex` is on unless it is turned off.
trade.index({ customerId: 1, date: -1 });
trade.index({ ticker: 1, quantity: 1 });
trade.index({ "settled.at": 1 }, { name: "by_settlement" });
trade.virtual("signed").get(function signed() {
  return this.type === "sell" ? -this.quantity : this.quantity;
});
trade.pre("save", function normalise() {
  if (this.isModified("tags")) this.tags = [...new Set(this.tags)];
});
trade.statics.page = function page(customerId, number, size = 10) {
  return this.find({ customerId }).sort({ date: 1 }).skip(size * (number - 1)).limit(size);
};

const customer = new Schema({ _id: Number, name: String }, { collection: "customers", versionKey: false });
customer.virtual("latest", { ref: "Trade", localField: "_id", foreignField: "customerId", options: { sort: { date: -1 }, limit: 3 } });

// The same trades under a model that demands their version in every save.
const careful = trade.clone();
careful.set("optimisticConcurrency", true);
careful.set("autoIndex", false);

export const Trade = mongoose.model("Trade", trade);
export const Customer = mongoose.model("Customer", customer);
export const CarefulTrade = mongoose.model("CarefulTrade", careful);

// Ids as Mongoose gives them, but the same in every run.
export function id(number) {
  return new mongoose.Types.ObjectId(number.toString(16).padStart(24, "0"));
}

export function plain(number) {
  return {
    _id: id(number),
    customerId: number % 5 < 3 ? 123 : 456,
    type: number % 3 === 0 ? "buy" : "sell",
    ticker: number % 2 === 0 ? "mdb" : "goog",
    quantity: 10 * number,
    date: new Date(Date.UTC(2023, 9, 26, 15, 47 + number, 3, 434)),
  };
}
