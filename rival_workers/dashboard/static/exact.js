// JSON with whole numbers that a browser's numbers cannot hold, such as ids of 64 bits: they stay as they are written.
// A browser without `JSON.rawJSON` rounds them.

const LONG = /\d{16}/;

class Exact {
  constructor(text) { this.text = text; Object.freeze(this); }
  toJSON() { return JSON.rawJSON(this.text); }
  toString() { return this.text; }
  valueOf() { return Number(this.text); }
}

export const isExact = (value) => value instanceof Exact;

/** A whole number as it is written, exact if it is long. */
export const wholeNumber = (text) => (JSON.rawJSON && !Number.isSafeInteger(Number(text)) ? new Exact(text) : Number(text));

const kept = (key, value, context) => (Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? wholeNumber(context.source) : value);

export const parseJson = (text) => (LONG.test(text) ? JSON.parse(text, kept) : JSON.parse(text));

/** A copy of a JSON value. */
export const copyOf = (value) => (value === undefined ? undefined : parseJson(JSON.stringify(value)));
