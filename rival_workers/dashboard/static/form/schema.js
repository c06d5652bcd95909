// Reads a JSON Schema as pydantic writes it: what kind of field a schema is, its first value, its variants. Pure.
// `undefined` is a value that is absent; null and "" are values of their own.

import { copyOf, isExact } from "../exact.js";

/** The schema with its `$ref` followed; what stands beside the `$ref` (default, description) wins. */
export function deref(schema, root) {
  let found = schema ?? {};
  for (let depth = 0; found.$ref && depth < 20; depth++) {
    const { $ref, ...beside } = found;
    const target = $ref.startsWith("#/") ? $ref.slice(2).split("/").reduce((at, key) => at?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], root) : null;
    if (!target) return { ...beside, unknown: true };
    found = { ...target, ...beside };
  }
  if (Array.isArray(found.allOf) && found.allOf.length === 1) {
    const { allOf, ...beside } = found;
    return deref({ ...deref(allOf[0], root), ...beside }, root);
  }
  if (Array.isArray(found.type)) {
    const { type, ...beside } = found;
    return { ...beside, anyOf: type.map((one) => ({ ...(one === "null" ? {} : withoutNotes(beside)), type: one })) };
  }
  return found;
}

const withoutNotes = ({ title, description, default: _default, examples, ...rest }) => { void title; void description; void _default; void examples; return rest; };

const NOTES = ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"];
const notesOf = (schema) => Object.fromEntries(NOTES.filter((key) => key in schema).map((key) => [key, schema[key]]));

/**
 * What a schema asks for.
 * @returns {{kind: string, nullable: boolean, schema: object, variants?: object[], values?: any[]}}
 */
export function read(given, root) {
  const schema = deref(given, root);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return readUnion(schema, several, root);
  if ("const" in schema) return { kind: "const", nullable: false, schema };
  if (schema.enum) return { kind: "enum", nullable: false, schema, values: schema.enum };
  switch (schema.type) {
    case "object": return { kind: objectKind(schema), nullable: false, schema };
    case "array": return { kind: arrayKind(schema, root), nullable: false, schema };
    case "string": case "integer": case "number": case "boolean": case "null": return { kind: schema.type, nullable: false, schema };
    default: return { kind: schema.properties ? "object" : "json", nullable: false, schema };
  }
}

function readUnion(schema, several, root) {
  const options = several.map((one) => deref(one, root));
  const solid = options.filter((one) => one.type !== "null" && !("const" in one && one.const === null));
  const nullable = solid.length < options.length;
  const notes = notesOf(schema);
  if (solid.length === 0) return { kind: "null", nullable: false, schema };
  if (solid.length === 1) return { ...read({ ...solid[0], ...notes }, root), nullable };
  const types = new Set(solid.map((one) => one.type));
  // Decimal: a number, or a text that holds one.
  if (solid.length === 2 && types.has("string") && types.has("number") && solid.every((one) => !one.enum && one.format === undefined)) {
    return { kind: "decimal", nullable, schema: { ...solid.find((one) => one.type === "number"), ...notes } };
  }
  if (solid.length === 2 && types.has("integer") && types.has("number")) return { kind: "number", nullable, schema: { type: "number", ...notes } };
  if (solid.every((one) => "const" in one || one.enum)) return { kind: "enum", nullable, schema: { ...schema, ...notes }, values: solid.flatMap((one) => one.enum ?? [one.const]) };
  return { kind: "union", nullable, schema, variants: solid, discriminator: schema.discriminator?.propertyName ?? commonConst(solid, root) };
}

/** The property whose constant differs between the variants, if there is one. */
function commonConst(variants, root) {
  const [first, ...rest] = variants;
  for (const [name, one] of Object.entries(first.properties ?? {})) {
    const isConst = (schema) => schema && "const" in deref(schema, root);
    if (isConst(one) && rest.every((other) => isConst(other.properties?.[name]))) return name;
  }
  return null;
}

function objectKind(schema) {
  if (schema.properties && Object.keys(schema.properties).length > 0) return "object";
  if (schema.additionalProperties && typeof schema.additionalProperties === "object") return "map";
  if (schema.patternProperties) return "map";
  return schema.properties || schema.additionalProperties === false ? "object" : "json";
}

function arrayKind(schema, root) {
  if (schema.prefixItems) return "tuple";
  const items = deref(schema.items ?? {}, root);
  if (schema.uniqueItems && items.enum && items.enum.length <= 12) return "choices";
  if (!schema.items) return "json";
  return isFlat(items, root) ? "table" : "list";
}

const SCALAR = new Set(["string", "integer", "number", "boolean", "enum", "decimal"]);
function isFlat(items, root) {
  const properties = Object.entries(items.properties ?? {});
  if (items.type !== "object" || properties.length < 1 || properties.length > 4) return false;
  return properties.every(([, one]) => {
    const shallow = deref(one, root);
    if (shallow.type === "array" || shallow.type === "object") return false;
    const found = read(one, root);
    return SCALAR.has(found.kind) && !found.nullable;
  });
}

/** The schema of a map's values. */
export const valuesOf = (schema) => (typeof schema.additionalProperties === "object" ? schema.additionalProperties : Object.values(schema.patternProperties ?? {})[0] ?? {});

/** The first value of a field: its default; of what is required, as much as is certain. */
export function initial(given, root, required = true, depth = 0) {
  const schema = deref(given, root);
  if ("default" in schema) return copyOf(schema.default);
  const found = read(given, root);
  if (found.kind === "const") return required || depth > 0 ? found.schema.const : undefined;
  if (!required || depth > 6) return undefined;
  if (found.nullable) return undefined;
  switch (found.kind) {
    case "object": return initialObject(found.schema, root, depth);
    case "map": return {};
    case "list": case "table": case "choices": return Array.from({ length: Math.min(found.schema.minItems ?? 0, 3) }, () => initial(found.schema.items, root, true, depth + 1));
    case "tuple": return found.schema.prefixItems.map((one) => initial(one, root, true, depth + 1) ?? null);
    case "union": return initial(found.variants[0], root, true, depth + 1);
    case "null": return null;
    default: return undefined;
  }
}

function initialObject(schema, root, depth) {
  const made = {};
  for (const [name, one] of Object.entries(schema.properties ?? {})) {
    const value = initial(one, root, (schema.required ?? []).includes(name), depth + 1);
    if (value !== undefined) made[name] = value;
  }
  return made;
}

/** A value to begin with when the reader adds what was absent. */
export function blank(schema, root) {
  const made = initial(schema, root, true);
  if (made !== undefined && made !== null) return made;
  const { kind, values, variants } = read(schema, root);
  return { string: "", boolean: false, object: {}, map: {}, list: [], table: [], choices: [], json: {}, enum: values?.[0], union: variants && blank(variants[0], root) }[kind];
}

const LISTS = new Set(["list", "table", "choices", "tuple"]);
const OBJECTS = new Set(["object", "map"]);

/** Whether a value can be shown by the fields of its kind; one that was written as JSON may be of any shape. */
export function isShaped({ kind }, value) {
  if (value === undefined || value === null || kind === "json" || kind === "union") return true;
  const type = Array.isArray(value) ? "list" : typeof value === "object" && !isExact(value) ? "object" : "one";
  return type === (LISTS.has(kind) ? "list" : OBJECTS.has(kind) ? "object" : "one");
}

/** Which variant of a union a value is: by its discriminator, else by its type. */
export function variantOf(variants, value, discriminator, root) {
  if (value === undefined || value === null) return 0;
  if (discriminator && typeof value === "object") {
    const at = variants.findIndex((one) => { const marked = deref(one.properties?.[discriminator] ?? {}, root); return marked.const === value[discriminator] || marked.enum?.includes(value[discriminator]); });
    if (at >= 0) return at;
  }
  const scores = variants.map((one) => fitness(one, value, root));
  return scores.indexOf(Math.max(...scores));
}

function fitness(given, value, root) {
  const schema = deref(given, root);
  if ("const" in schema) return schema.const === value ? 5 : 0;
  if (schema.enum) return schema.enum.includes(value) ? 5 : 0;
  if (isExact(value)) return { integer: 4, number: 3 }[schema.type] ?? 0;
  const type = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
  if (type === "number") return schema.type === "integer" && Number.isInteger(value) ? 4 : schema.type === "number" ? 3 : 0;
  if (type !== schema.type) return schema.type === undefined ? 1 : 0;
  if (type !== "object") return 3;
  const names = Object.keys(schema.properties ?? {});
  const missing = (schema.required ?? []).filter((name) => !(name in value)).length;
  return 2 + names.filter((name) => name in value).length / (names.length + 1) - missing;
}

const TYPE_WORDS = { string: "str", integer: "int", number: "number", boolean: "yes or no", json: "JSON", map: "names and values", decimal: "decimal", null: "none", table: "list", list: "list", tuple: "list", choices: "some of", object: "", enum: "", union: "one of", const: "" };
export const FORMATS = { "date-time": "date and time", date: "date", time: "time", duration: "duration", uuid: "UUID", email: "email", uri: "address", password: "secret", binary: "bytes" };

/** What a field takes, in a few words: "str or none", "list of Line, 1 to 500". */
export function hint(found, root) {
  const { schema, kind } = found;
  const parts = [];
  if (kind === "list" || kind === "table") {
    const items = deref(schema.items, root);
    parts.push(`list${items.title ? ` of ${items.title}` : TYPE_WORDS[items.type] ? ` of ${TYPE_WORDS[items.type]}` : ""}`);
    parts.push(range(schema.minItems, schema.maxItems));
  } else if (kind === "object") parts.push(schema.title ?? "");
  else parts.push(FORMATS[schema.format] ?? TYPE_WORDS[kind] ?? "");
  if (kind === "integer" || kind === "number" || kind === "decimal") parts.push(bounds(schema));
  if (kind === "string") parts.push(range(schema.minLength, schema.maxLength, "characters"));
  const text = parts.filter(Boolean).join(", ");
  return found.nullable ? `${text} or none` : text;
}

function bounds(schema) {
  const low = schema.minimum ?? (schema.exclusiveMinimum !== undefined ? `>${schema.exclusiveMinimum}` : undefined);
  const high = schema.maximum ?? (schema.exclusiveMaximum !== undefined ? `<${schema.exclusiveMaximum}` : undefined);
  return range(low, high);
}

function range(low, high, unit = "") {
  const end = unit ? ` ${unit}` : "";
  if (low !== undefined && high !== undefined) return `${low} to ${high}${end}`;
  if (low) return String(low).startsWith(">") ? `${low.replace(">", "over ")}${end}` : `at least ${low}${end}`;
  return high !== undefined ? (String(high).startsWith("<") ? `under ${high.slice(1)}${end}` : `at most ${high}${end}`) : "";
}

/** A property's name in a JSON pointer. */
export const pointerTo = (pointer, key) => `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
