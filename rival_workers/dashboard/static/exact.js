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

const typed = (key, value, context) => {
  if (typeof value !== "number" || Number.isFinite(value)) return kept(key, value, context);
  if (JSON.rawJSON && /^-?\d+$/.test(context.source)) return wholeNumber(context.source);
  throw new RangeError(`${context?.source ?? "A number"} is too large for a number: write it as text, or a smaller one.`);
};

/** JSON that a person has typed. A number that would become infinite, and so null where it is sent, is refused. */
export const typedJson = (text) => JSON.parse(text, typed);

/** What to say of text that `typedJson` refuses. */
export const whyNot = (error) => (error instanceof RangeError ? error.message : `This is not JSON yet: ${error.message}`);

/** A copy of a JSON value. */
export const copyOf = (value) => (value === undefined ? undefined : parseJson(JSON.stringify(value)));
