// Draws the fields of a schema. A field gets a value and `set`; `set(undefined)` makes it absent. What it cannot draw is a JSON box for that field alone.
import { html, Fragment, useEffect, useRef, useState, Button, Sign, arrows } from "../ui.js";
import { typedJson, whyNot, wholeNumber } from "../exact.js";
import { FORMATS, blank, deref, hint, initial, isShaped, pointerTo, read, valuesOf, variantOf } from "./schema.js";

/** Of a field's control. Other letters are written as numbers: no two names have the same id. */
export const idOf = (pointer) => `f${pointer.replaceAll("/", "--").replace(/[^\w-]/gu, (letter) => `_${letter.codePointAt(0).toString(16)}_`) || "-root"}`;

function Errors({ pointer, errors }) {
  const mine = errors.filter((one) => one.pointer === pointer);
  return mine.map((one, at) => html`<p class="err" key=${at} id=${`${idOf(pointer)}-e${at || ""}`}><${Sign} of="failed" /><span><span class="m">${pointer || "/"}</span> ${one.message}</span></p>`);
}

const described = (pointer, errors) => (errors.some((one) => one.pointer === pointer) ? { "aria-invalid": "true", "aria-describedby": `${idOf(pointer)}-e` } : {});

/**
 * A field with its label.
 * @param {{name: string, schema: object, root: object, value: any, set: (value: any) => void, required: boolean, pointer: string, errors: object[]}} props
 */
export function Field(props) {
  const { name, schema, root, value, set, required, pointer, errors } = props;
  const found = read(schema, root);
  const none = value === null && found.nullable;
  const notes = html`${found.schema.description && html`<p class="hint">${found.schema.description}</p>`}${found.schema.deprecated && html`<p class="hint wait">deprecated</p>`}`;
  const star = required && html`<em aria-hidden="true">*</em>`;
  const toggle = found.nullable && html`<label class="sw"><input type="checkbox" role="switch" id=${`${idOf(pointer)}-none`} checked=${none} aria-label=${`${name} is none`} onChange=${(event) => set(event.target.checked ? null : blank(withoutNull(found), root))} />none</label>`;
  const union = useVariant(found, root, value, set);
  if (found.kind === "const") return null;
  if (BLOCKS.has(found.kind)) {
    // Of a union of single values the first control is shown at once: there is nothing to fill in before it.
    const absent = value === undefined && !(found.kind === "union" && (required || blank(withoutNull(found), root) === undefined));
    const add = absent && html`<button type="button" class="lk sm" onClick=${() => set(blank(withoutNull(found), root) ?? {})}>fill in</button>`;
    const drop = value !== undefined && !none && !required && html`<button type="button" class="lk sm" aria-label=${`Leave ${name} out`} onClick=${() => set(undefined)}>leave out</button>`;
    return html`<fieldset id=${blockId(found, pointer)} tabindex="-1"><legend>${name} ${star} <span class="hint">${hint(found, root)}</span> ${found.kind === "union" && !absent && !none && html`<${Picker} ...${props} found=${found} union=${union} />`} ${add}${drop}${toggle}</legend>
      ${notes}${!absent && !none && html`<${Block} ...${props} found=${found} union=${union} />`}<${Errors} pointer=${pointer} errors=${errors} /></fieldset>`;
  }
  const control = html`<${Scalar} ...${props} found=${found} none=${none} />`;
  const label = found.kind === "enum" && isSegment(found.values) || found.kind === "boolean" ? html`<span class="fl" id=${`${idOf(pointer)}-l`}>${name} ${star}</span>` : html`<label class="fl" for=${idOf(pointer)}>${name} ${star}</label>`;
  return html`${label}<div><div class="bar">${control}${toggle}<span class="hint grow">${hint(found, root)}</span></div>${notes}<${Errors} pointer=${pointer} errors=${errors} /></div>`;
}

/** A union may have a single control with the field's id inside it. */
const blockId = (found, pointer) => idOf(pointer) + (found.kind === "union" ? "-set" : "");
const BLOCKS = new Set(["object", "map", "list", "table", "tuple", "choices", "union"]);

/** The schema without its null variant and its default. */
function withoutNull(found) {
  const { default: _default, ...schema } = found.schema;
  void _default;
  return found.kind === "union" ? { anyOf: found.variants, discriminator: schema.discriminator } : schema;
}

function Block(props) {
  const { found, value, name, pointer } = props;
  if (!isShaped(found, value)) return html`<div class="in-set one"><${JsonBox} ...${props} common=${{ id: `${idOf(pointer)}-json`, "aria-label": `${props.label ?? name} as JSON` }} /></div>`;
  switch (found.kind) {
    case "object": return html`<${ObjectFields} ...${props} schema=${found.schema} />`;
    case "map": return html`<${MapRows} ...${props} />`;
    case "table": return html`<${TableRows} ...${props} />`;
    case "list": return html`<${ListRows} ...${props} />`;
    case "tuple": return html`<${Tuple} ...${props} />`;
    case "choices": return html`<${Choices} ...${props} />`;
    default: return html`<${Union} ...${props} />`;
  }
}

export function ObjectFields({ schema, root, value, set, pointer, errors, bare }) {
  const now = value ?? {};
  const change = (name, one) => {
    const { [name]: _old, ...rest } = now;
    void _old;
    // The order of the schema is kept.
    const made = one === undefined ? rest : { ...rest, [name]: one };
    set(Object.fromEntries(ordered(made, schema)));
  };
  const names = Object.keys(schema.properties ?? {});
  const extra = schema.additionalProperties && names.length > 0;
  const fields = names.map((name) => html`<${Field} key=${name} name=${name} schema=${schema.properties[name]} root=${root} value=${now[name]} set=${(one) => change(name, one)} required=${(schema.required ?? []).includes(name)} pointer=${pointerTo(pointer, name)} errors=${errors} />`);
  const more = extra && html`<${Field} name="more fields" schema=${{ type: "object", additionalProperties: typeof schema.additionalProperties === "object" ? schema.additionalProperties : {} }} root=${root} value=${others(now, names)} set=${(one) => set({ ...only(now, names), ...(one ?? {}) })} required=${true} pointer=${`${pointer}/`} errors=${[]} />`;
  return bare ? html`<${Fragment}>${fields}${more}<//>` : html`<div class="in-set">${fields}${more}</div>`;
}

const others = (value, names) => Object.fromEntries(Object.entries(value).filter(([key]) => !names.includes(key)));
const only = (value, names) => Object.fromEntries(Object.entries(value).filter(([key]) => names.includes(key)));
function ordered(value, schema) {
  const names = Object.keys(schema.properties ?? {});
  const rank = (key) => { const at = names.indexOf(key); return at < 0 ? names.length : at; };
  return Object.entries(value).sort(([one], [other]) => rank(one) - rank(other));
}

/** Names and values: rows, so that a name can be edited; the same name twice is said at once. */
function MapRows({ found, root, value, set, pointer, errors }) {
  const [rows, setRows] = useState(() => Object.entries(value ?? {}));
  const sent = useRef(JSON.stringify(value ?? {}));
  useEffect(() => { const text = JSON.stringify(value ?? {}); if (text !== sent.current) { sent.current = text; setRows(Object.entries(value ?? {})); } }, [value]);
  const inner = valuesOf(found.schema);
  // Further fields of a model have the pointers of the model's own fields.
  const owner = pointer.endsWith("/") ? pointer.slice(0, -1) : pointer;
  const change = (made) => { setRows(made); const object = Object.fromEntries(made.filter(([key]) => key !== "")); sent.current = JSON.stringify(object); set(object); };
  const keys = rows.map(([key]) => key);
  const names = found.schema.propertyNames?.enum ?? null;
  return html`<div class="in-set one">${rows.map(([key, one], at) => html`<div class="kv" key=${at}><input class="in m" aria-label=${`Name ${at + 1}`} value=${key} list=${names ? `${idOf(pointer)}-n` : undefined} aria-invalid=${keys.indexOf(key) !== at ? "true" : undefined} onInput=${(event) => change(rows.map((row, nth) => (nth === at ? [event.target.value, row[1]] : row)))} />
      <div class="kvv"><${Bare} schema=${inner} root=${root} value=${one} set=${(made) => change(rows.map((row, nth) => (nth === at ? [row[0], made === undefined ? null : made] : row)))} pointer=${pointerTo(owner, key)} errors=${errors} label=${`Value of ${key || at + 1}`} /></div>
      <${Button} kind="no" sign="x" label=${`Remove ${key || `row ${at + 1}`}`} onClick=${() => change(rows.filter((_, nth) => nth !== at))} />
      ${keys.indexOf(key) !== at && html`<p class="err">This name is there already.</p>`}</div>`)}
    ${names && html`<datalist id=${`${idOf(pointer)}-n`}>${names.map((one) => html`<option value=${one} key=${one} />`)}</datalist>`}
    <div><button type="button" class="b no" onClick=${() => change([...rows, ["", initial(inner, root) ?? blank(inner, root) ?? null]])}>+ Add</button></div></div>`;
}

/** A field without a label of its own: in a row of a list or a map. */
function Bare(props) {
  const { schema, root, value, set, pointer, errors, label } = props;
  const found = read(schema, root);
  const union = useVariant(found, root, value, set);
  if (found.kind === "const") return html`<code>${JSON.stringify(found.schema.const)}</code>`;
  if (BLOCKS.has(found.kind)) {
    const none = value === null && found.nullable;
    return html`<div class="bare" role="group" aria-label=${label} id=${blockId(found, pointer)} tabindex="-1">${found.nullable && html`<label class="sw"><input type="checkbox" role="switch" checked=${none} onChange=${(event) => set(event.target.checked ? null : blank(withoutNull(found), root))} />none</label>`}${found.kind === "union" && !none && html`<${Picker} ...${props} name=${label} found=${found} union=${union} />`}${!none && html`<${Block} ...${props} found=${found} union=${union} />`}<${Errors} pointer=${pointer} errors=${errors} /></div>`;
  }
  const none = value === null && found.nullable;
  return html`<div class="bar"><${Scalar} ...${props} name=${label} found=${found} none=${none} required=${true} />${found.nullable && html`<label class="sw"><input type="checkbox" role="switch" checked=${none} aria-label=${`${label} is none`} onChange=${(event) => set(event.target.checked ? null : blank(withoutNull(found), root))} />none</label>`}</div><${Errors} pointer=${pointer} errors=${errors} />`;
}

function TableRows({ found, root, value, set, pointer, errors, name }) {
  const rows = value ?? [];
  const items = deref(found.schema.items, root);
  const names = Object.keys(items.properties);
  const change = (at, key, one) => set(rows.map((row, nth) => { if (nth !== at) return row; const { [key]: _old, ...rest } = row; void _old; return Object.fromEntries(ordered(one === undefined ? rest : { ...rest, [key]: one }, items)); }));
  const below = (at) => errors.filter((one) => one.pointer === `${pointer}/${at}` || one.pointer.startsWith(`${pointer}/${at}/`));
  return html`<div class="in-set one"><table class="items"><thead><tr>${names.map((key) => html`<th key=${key} class=${read(items.properties[key], root).kind === "boolean" && key.length < 8 ? "w-b" : ""}>${key}</th>`)}<th class="w-x"><span class="vh">Remove</span></th></tr></thead><tbody>
    ${rows.map((row, at) => html`<${Fragment} key=${at}><tr id=${idOf(`${pointer}/${at}`)} tabindex="-1">${names.map((key) => { const inner = read(items.properties[key], root); return html`<td key=${key}><${Scalar} schema=${items.properties[key]} root=${root} found=${inner} value=${row?.[key]} set=${(one) => change(at, key, one)} required=${(items.required ?? []).includes(key)} pointer=${`${pointer}/${at}/${key}`} errors=${errors} name=${`${name} ${at + 1} ${key}`} table /></td>`; })}
      <td><${Button} kind="no" sign="x" label=${`Remove ${name} ${at + 1}`} onClick=${() => set(rows.filter((_, nth) => nth !== at))} /></td></tr>
      ${below(at).length > 0 && html`<tr><td colspan=${names.length + 1} class="errs">${below(at).map((one) => html`<p class="err" key=${one.pointer} id=${`${idOf(one.pointer)}-e`}><${Sign} of="failed" /><span><span class="m">${one.pointer}</span> ${one.message}</span></p>`)}</td></tr>`}<//>`)}</tbody></table>
    <div><button type="button" class="b no" onClick=${() => set([...rows, initial(items, root) ?? {}])}>+ Add</button></div></div>`;
}

function ListRows({ found, root, value, set, pointer, errors, name }) {
  const rows = value ?? [];
  const { items } = found.schema;
  const change = (at, one) => set(rows.map((row, nth) => (nth === at ? (one === undefined ? null : one) : row)));
  return html`<div class="in-set one">${rows.map((row, at) => html`<div class="li" key=${at}><div class="grow"><${Bare} schema=${items} root=${root} value=${row ?? undefined} set=${(one) => change(at, one)} pointer=${`${pointer}/${at}`} errors=${errors} label=${`${name} ${at + 1}`} /></div>
      <${Button} kind="no" sign="x" label=${`Remove ${name} ${at + 1}`} onClick=${() => set(rows.filter((_, nth) => nth !== at))} /></div>`)}
    <div><button type="button" class="b no" onClick=${() => set([...rows, initial(items, root) ?? blank(items, root) ?? null])}>+ Add</button></div></div>`;
}

function Tuple({ found, root, value, set, pointer, errors, name }) {
  const parts = found.schema.prefixItems;
  const now = value ?? [];
  return html`<div class="in-set">${parts.map((one, at) => html`<${Field} key=${at} name=${deref(one, root).title ?? `${name} ${at + 1}`} schema=${one} root=${root} value=${now[at] === null && !read(one, root).nullable ? undefined : now[at]} set=${(made) => set(parts.map((_, nth) => (nth === at ? made ?? null : now[nth] ?? null)))} required=${true} pointer=${`${pointer}/${at}`} errors=${errors} />`)}</div>`;
}

function Choices({ found, root, value, set }) {
  const all = deref(found.schema.items, root).enum;
  const now = value ?? [];
  return html`<div class="in-set one"><div class="bar wrap">${all.map((one) => html`<label class="chk" key=${String(one)}><input type="checkbox" checked=${now.includes(one)} onChange=${(event) => set(event.target.checked ? [...now, one] : now.filter((other) => other !== one))} /> <code>${String(one)}</code></label>`)}</div></div>`;
}

const titleOf = (variant, root) => {
  const schema = deref(variant, root);
  return schema.title ?? ("const" in schema ? String(schema.const) : FORMATS[schema.format] ?? { integer: "int", number: "number", string: "str", boolean: "yes or no", array: "list", object: "object" }[schema.type] ?? "JSON");
};

/** Which of several types a value has: what the reader chose, else what the value looks like. */
function useVariant(found, root, value, set) {
  const [chosen, setChosen] = useState(null);
  if (found.kind !== "union") return null;
  const fits = chosen !== null && isShaped(read(found.variants[chosen], root), value);
  const at = fits ? chosen : variantOf(found.variants, value, found.discriminator, root);
  return { at, pick(next) { if (next !== at) { setChosen(next); set(carried(found.variants[next], value, found, root)); } } };
}

function Picker({ found, root, union: { at, pick }, name }) {
  if (found.variants.length > 4) return html`<select class="in w200" aria-label=${`${name} is`} value=${at} onChange=${(event) => pick(Number(event.target.value))}>${found.variants.map((one, nth) => html`<option key=${nth} value=${nth}>${titleOf(one, root)}</option>`)}</select>`;
  return html`<span class="seg" role="radiogroup" onKeyDown=${arrows} aria-label=${`${name} is`}>${found.variants.map((one, nth) => html`<button type="button" role="radio" key=${nth} aria-checked=${String(nth === at)} onClick=${() => pick(nth)}>${titleOf(one, root)}</button>`)}</span>`;
}

/** The blank value of another variant, with what both have in common. */
function carried(variant, value, found, root) {
  const made = blank(variant, root);
  if (!made || typeof made !== "object" || Array.isArray(made) || !value || typeof value !== "object") return made;
  const schema = deref(variant, root);
  for (const [key, one] of Object.entries(value)) {
    if (key !== found.discriminator && schema.properties?.[key] && !("const" in deref(schema.properties[key], root))) made[key] = one;
  }
  return made;
}

function Union(props) {
  const { found, root, union } = props;
  const variant = found.variants[union.at];
  const inner = read(variant, root);
  if (inner.kind === "const") return null;
  if (BLOCKS.has(inner.kind)) return html`<${Block} ...${props} schema=${variant} found=${inner} />`;
  return html`<div class="in-set one"><${Scalar} ...${props} schema=${variant} found=${inner} none=${false} /></div>`;
}

const isSegment = (values) => values.length <= 4 && values.every((one) => String(one).length <= 14);

/** At random, version 4; `crypto.randomUUID` is only there over TLS and on this machine. */
function uuid() {
  const made = crypto.getRandomValues(new Uint8Array(16));
  made[6] = (made[6] & 15) | 64;
  made[8] = (made[8] & 63) | 128;
  const hex = Array.from(made, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** One value that is neither an object nor a list. */
function Scalar(props) {
  const { found, value, set, pointer, errors, name, none, required, table } = props;
  const { schema, kind } = found;
  const common = { id: idOf(pointer), "aria-label": table || props.label ? name : undefined, disabled: none, "aria-required": required ? "true" : undefined, ...described(pointer, errors) };
  if (!isShaped(found, value)) return html`<${JsonBox} ...${props} common=${common} />`;
  if (kind === "enum") return html`<${Enum} ...${props} common=${common} />`;
  if (kind === "boolean") return html`<${Bool} ...${props} common=${common} />`;
  if (kind === "integer" || kind === "number") return html`<${NumberBox} ...${props} common=${common} />`;
  if (kind === "json" || kind === "null") return html`<${JsonBox} ...${props} common=${common} />`;
  const examples = schema.examples ?? [];
  const text = value === undefined || value === null ? "" : String(value);
  const change = (event) => set(event.target.value === "" && !required ? undefined : event.target.value);
  const long = (schema.maxLength ?? 0) > 300 || text.includes("\n");
  const type = { email: "email", uri: "url", password: "password", date: "date" }[schema.writeOnly ? "password" : schema.format] ?? "text";
  const usable = type !== "date" || text === "" || /^\d{4}-\d\d-\d\d$/.test(text);
  const place = none ? "none" : { "date-time": "2026-11-20T10:00:00Z", duration: "PT1H30M", time: "10:00:00", uuid: "" }[schema.format] ?? (examples.length ? `such as ${examples[0]}` : "");
  if (long) return html`<textarea class="in area" rows="3" ...${common} value=${text} onInput=${change}></textarea>`;
  return html`<input class=${`in ${["date", "time", "date-time", "uuid", "duration"].includes(schema.format) || kind === "decimal" ? "w200" : ""}`} type=${usable ? type : "text"} autocomplete="off" spellcheck="false" placeholder=${place} list=${examples.length ? `${idOf(pointer)}-x` : undefined} inputmode=${kind === "decimal" ? "decimal" : undefined} ...${common} value=${text} onInput=${change} />
    ${examples.length > 0 && html`<datalist id=${`${idOf(pointer)}-x`}>${examples.map((one, at) => html`<option key=${at} value=${typeof one === "object" ? JSON.stringify(one) : String(one)} />`)}</datalist>`}
    ${schema.format === "uuid" && html`<button type="button" class="lk sm" onClick=${() => set(uuid())}>new</button>`}${schema.format === "date-time" && html`<button type="button" class="lk sm" onClick=${() => set(new Date().toISOString().replace(/\.\d+/, ""))}>now</button>`}`;
}

function Enum({ found, value, set, pointer, required, common, none, name }) {
  const { values } = found;
  if (isSegment(values)) {
    return html`<div class="seg" role="radiogroup" onKeyDown=${arrows} id=${common.id} tabindex="-1" aria-labelledby=${common["aria-label"] ? undefined : `${idOf(pointer)}-l`} aria-label=${common["aria-label"]}>${values.map((one) => html`<button type="button" role="radio" key=${JSON.stringify(one)} aria-checked=${String(one === value)} disabled=${none} onClick=${() => set(one === value && !required ? undefined : one)}>${String(one)}</button>`)}</div>`;
  }
  const at = values.findIndex((one) => one === value);
  void name;
  return html`<select class="in" ...${common} value=${at} onChange=${(event) => set(event.target.value === "-1" ? undefined : values[Number(event.target.value)])}>${(at < 0 || !required) && html`<option value="-1">–</option>`}${values.map((one, nth) => html`<option key=${nth} value=${nth}>${String(one)}</option>`)}</select>`;
}

function Bool({ value, set, required, common, none, table, pointer }) {
  if (table || value === true || value === false) {
    return html`<span class="bar"><input type="checkbox" ...${common} aria-labelledby=${common["aria-label"] ? undefined : `${idOf(pointer)}-l`} checked=${value === true} onChange=${(event) => set(event.target.checked)} />${!required && !table && html`<button type="button" class="lk sm" onClick=${() => set(undefined)}>leave out</button>`}</span>`;
  }
  return html`<div class="seg" role="radiogroup" onKeyDown=${arrows} id=${common.id} tabindex="-1" aria-labelledby=${`${idOf(pointer)}-l`}>${[[true, "yes"], [false, "no"]].map(([one, word]) => html`<button type="button" role="radio" key=${word} disabled=${none} aria-checked="false" onClick=${() => set(one)}>${word}</button>`)}</div>`;
}

/** Text while it is typed; a number as soon as it is one. */
function NumberBox({ found, value, set, common, none }) {
  const given = value === undefined || value === null ? "" : String(value);
  const [text, setText] = useState(given);
  const sent = useRef(value);
  useEffect(() => { if (!Object.is(value, sent.current)) { sent.current = value; setText(given); } }, [value]);
  const change = (event) => {
    const typed = event.target.value;
    setText(typed);
    const bare = typed.trim();
    const number = Number(bare);
    const made = bare === "" ? undefined : /^-?(0|[1-9]\d*)$/.test(bare) ? wholeNumber(bare) : Number.isFinite(number) ? number : typed;
    sent.current = made;
    set(made);
  };
  return html`<input class="in num" inputmode=${found.kind === "integer" ? "numeric" : "decimal"} autocomplete="off" ...${common} placeholder=${none ? "none" : ""} value=${text} onInput=${change} />`;
}

/** JSON for one field. */
function JsonBox({ found, value, set, required, common, none }) {
  const given = value === undefined ? "" : JSON.stringify(value, null, 1);
  const [text, setText] = useState(given);
  const [bad, setBad] = useState(null);
  const sent = useRef(given);
  useEffect(() => { if (given !== sent.current) { sent.current = given; setText(given); setBad(null); } }, [given]);
  const change = (event) => {
    const typed = event.target.value;
    setText(typed);
    if (typed.trim() === "" && !required) { sent.current = ""; setBad(null); set(undefined); return; }
    try {
      const made = typedJson(typed);
      sent.current = JSON.stringify(made, null, 1);
      setBad(null);
      set(made);
    } catch (error) { setBad(whyNot(error)); }
  };
  void found;
  return html`<span class="grow"><textarea class="in area m" rows=${Math.min(8, Math.max(2, text.split("\n").length))} ...${common} spellcheck="false" aria-invalid=${bad ? "true" : common["aria-invalid"]} data-unread=${bad ? "1" : undefined} placeholder=${none ? "none" : "JSON"} value=${none ? "" : text} onInput=${change}></textarea>${bad && html`<span class="err">${bad}</span>`}</span>`;
}
