// What a program on Mongoose prints: a line of JSON for each step, the same in every run on equal servers.

import mongoose from "mongoose";

// What Mongoose fills in by its clock.
const TIMES = ["createdAt", "updatedAt"];
// An id with a time after this was made by the driver.
const FIRST_MADE = new Date(Date.UTC(2020, 0, 1));

function idShown(digits) {
  return new mongoose.Types.ObjectId(digits).getTimestamp() > FIRST_MADE ? "made" : digits;
}

function shown(value) {
  if (value === undefined || value === null) return null;
  if (value instanceof mongoose.Document) return shown(value.toObject({ virtuals: true, id: false }));
  if (value instanceof mongoose.Types.ObjectId) return { $oid: idShown(value.toHexString()) };
  if (value instanceof Date) return { $date: value.toISOString() };
  if (value instanceof Map) return shown(Object.fromEntries(value));
  if (Array.isArray(value)) return [...value].map(shown);
  if (typeof value !== "object") return value;
  const fields = Object.entries(value).map(([name, field]) => [name, TIMES.includes(name) && field instanceof Date ? "now" : shown(field)]);
  // The order of a stored document's own fields is the server's.
  if ("_id" in value) fields.sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(fields);
}

// What an application can tell of an error.
function failure(error) {
  const seen = { error: error.name, message: error.message.replace(/\b[0-9a-f]{24}\b/g, idShown) };
  if (error.code !== undefined) Object.assign(seen, { code: error.code, codeName: error.codeName });
  if (error.keyPattern) Object.assign(seen, { keyPattern: error.keyPattern, keyValue: error.keyValue });
  if (error.writeErrors) {
    seen.writeErrors = [error.writeErrors].flat().map(({ index, code, errmsg }) => ({ index, code, errmsg }));
    seen.result = counts(error.result ?? error);
  }
  return seen;
}

// Of a bulk write.
export function counts(result) {
  const names = ["insertedCount", "matchedCount", "modifiedCount", "deletedCount", "upsertedCount", "upsertedIds"];
  return Object.fromEntries(names.map((name) => [name, result[name]]));
}

export async function step(name, run) {
  let line;
  try {
    line = { step: name, saw: shown(await run()) };
  } catch (error) {
    line = { step: name, failed: shown(failure(error)) };
  }
  console.log(JSON.stringify(line));
}
