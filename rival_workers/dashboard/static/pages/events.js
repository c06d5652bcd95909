// Events and waits: topics, who waits for what, the kept event that nearly matches, and sending one.
import { html, useEffect, useState, Button, Loading, Problem, Segment, Sign, Status, useLoad, say, Wide } from "../ui.js";
import { get, idPath, may, post } from "../api.js";
import { footKeys } from "../frame.js";
import { query, to } from "../router.js";
import { count, distance, moment, time } from "../format.js";
import { Json } from "../json.js";
import { Ask, Field, parsed } from "../ask.js";

const capped = (found) => (found ? `${count(found.count)}${found.more ? "+" : ""}` : "–");
const DIFFERS = { run: "it is for another run", expired: "it has expired" };
const differs = (one, near) => (one === "key" ? `the key differs: ${near.key ?? "none"}` : DIFFERS[one]) ?? (one.startsWith("filter:") ? `${one.slice(7) || "the payload"} differs` : one);

function Send({ topic, wait, close, sent }) {
  const [payload, setPayload] = useState(wait?.filter ? JSON.stringify(wait.filter) : "{}");
  const [key, setKey] = useState(wait?.key ?? "");
  const [name, setName] = useState(topic ?? "");
  const [delivery, setDelivery] = useState("one");
  const given = parsed(payload);
  const ask = (dry) => post("events", { topic: name, payload: given.value, ...(key ? { key } : {}), delivery, dry_run: dry });
  return html`<${Ask} title="Send an event" ask=${ask} on=${JSON.stringify([name, payload, key, delivery])} why=${!name ? "Give the topic." : given ? null : "The payload is not JSON yet."} button="Send" close=${close}
    done=${(made) => { say(made.status === "duplicate" ? "This event was there already" : "Sent"); sent(); }}>${() => html`<${Field} id="ev-topic" label="Topic" value=${name} set=${setName} />
    <${Field} id="ev-key" label="Key" hint="optional" value=${key} set=${setKey} /><${Field} id="ev-payload" label="Payload as JSON" area="4" value=${payload} set=${setPayload} aria-invalid=${given ? undefined : "true"} />
    <div><label for="ev-delivery">For</label><select class="in w200" id="ev-delivery" value=${delivery} onChange=${(event) => setDelivery(event.target.value)}><option value="one">one run that waits</option><option value="all">all runs that wait</option></select></div>`}<//>`;
}

/** An external system has given its answer to a person instead: complete or fail the step of a token. */
function Answer({ close }) {
  const [token, setToken] = useState("");
  const [fails, setFails] = useState(false);
  const [text, setText] = useState("null");
  const [retry, setRetry] = useState(false);
  const given = fails ? { value: text } : parsed(text);
  const ask = (dry) => (fails ? post("external/fail", { token, message: text, retry, dry_run: dry }) : post("external/complete", { token, result: given.value, dry_run: dry }));
  return html`<${Ask} title="Answer an external step" note="A step that waits for an external system is answered with the token that it has handed out." ask=${ask} on=${JSON.stringify([token, fails, text, retry])}
    why=${!token ? "Give the token." : fails && !text ? "Say what has failed." : given ? null : "The result is not JSON yet."} button=${fails ? "Fail the step" : "Complete the step"} danger=${fails} close=${close}
    done=${(made) => (made.accepted ? say(`${made.step} of ${made.run} has its answer`) : say("The token is stale: the step has ended or has started again", "bad"))}>${(shown) => html`<${Field} id="ex-token" label="Token" value=${token} set=${setToken} />
    ${shown && html`<p class="sm i2">It is step <code>${shown.step}</code> of <a class="m" href=${to.run(shown.run, { step: shown.step })}>${shown.run}</a>.</p>`}
    <div><${Segment} label="Answer" of=${[[false, "It is done"], [true, "It has failed"]]} value=${fails} onPick=${(one) => { setFails(one); setText(one ? "" : "null"); }} /></div>
    ${fails ? html`<${Field} id="ex-text" label="What has failed" value=${text} set=${setText} /><label class="sw"><input type="checkbox" checked=${retry} onChange=${(event) => setRetry(event.target.checked)} />try the step again, if it has attempts left</label>`
      : html`<${Field} id="ex-text" label="Result as JSON" area="3" value=${text} set=${setText} aria-invalid=${given ? undefined : "true"} />`}`}<//>`;
}

function Waits({ topic, send, round }) {
  const { value, problem, again } = useLoad(() => get(idPath`topics/${topic}/waits`), [topic]);
  useEffect(() => { if (value) again(); }, [round]);
  if (problem) return html`<${Problem} problem=${problem} again=${again} />`;
  if (!value) return html`<${Loading} rows=${3} />`;
  return html`<section class="panel" aria-label="Waits"><div class="ph"><h2>What waits for <span class="m">${topic}</span></h2><span class="grow"></span>${may("verbs") && html`<${Button} onClick=${() => send({})}>Send…<//>`}</div>
    ${value.items.length === 0 ? html`<p class="sec0 i3">No run waits for it.</p>` : html`<${Wide} label="Waits"><table class="ws"><thead><tr><th>Run</th><th>Step</th><th>Key</th><th>Filter</th><th class="num">Since</th><th>Nearest kept event</th><th><span class="vh">Send</span></th></tr></thead><tbody>${value.items.map((one) => html`<tr key=${one.run + one.step}><td><a class="m" href=${to.run(one.run, { step: one.step })}>${one.run}</a></td><td class="m">${one.step}</td><td class="m">${one.key ?? html`<span class="i3">any</span>`}</td><td class="m i2">${one.filter ? JSON.stringify(one.filter) : ""}</td><td class="num i2" title=${moment(one.since)}>${distance(one.since)}</td>
      <td class="i2" title=${one.nearest ? `event ${one.nearest.event}` : undefined}>${one.nearest ? html`<span class="wait">${one.nearest.differs.map((what) => differs(what, one.nearest)).join(", ")}</span> <span class="i3 m xs">${one.nearest.event}</span>` : html`<span class="i3">none is near</span>`}</td><td class="num">${may("verbs") && html`<${Button} onClick=${() => send(one)}>Send…<//>`}</td></tr>`)}</tbody></table><//>`}</section>`;
}

function Event({ one }) {
  const [open, setOpen] = useState(null);
  const show = async () => setOpen(open ? null : await get(idPath`events/${one.id}`).catch(() => ({ deliveries: [] })));
  return html`<tr><td class="m i2" title=${one.id}>${one.id}</td><td class="m">${one.topic}</td><td class="m">${one.key ?? ""}</td><td><${Status} is=${{ kept: "pending", sent: "completed", consumed: "completed" }[one.status] ?? "pending"} word=${one.status} /></td><td class="num i2" title=${moment(one.created_at)}>${time(one.created_at)}</td><td class="i2"><button type="button" class="lk q m cut" aria-expanded=${String(Boolean(open))} onClick=${show}>${JSON.stringify(one.payload?.value ?? one.payload?.preview ?? null)}</button></td></tr>
    ${open && html`<tr class="detail"><td colspan="6"><${Json} value=${one.payload?.value ?? one.payload?.preview} />${open.deliveries.length > 0 && html`<p class="sm">Delivered to ${open.deliveries.map((to_) => html`<a key=${to_.run + to_.step} class="m" href=${to.run(to_.run, { step: to_.step })}>${to_.run}</a> `)}</p>`}</td></tr>`}`;
}

export default function Events() {
  const topic = query.value.get("topic");
  const topics = useLoad(() => get("topics"), []);
  const events = useLoad(() => get("events", { topic, limit: 50 }).then((answer) => ({ ...answer, topic })), [topic]);
  // Until the answer for this topic is there, the events of another are not shown as its own.
  const sent = events.value?.topic === topic ? events.value.items : null;
  const [sending, setSending] = useState(null);
  const [answering, setAnswering] = useState(false);
  useEffect(() => { document.title = "Events · Rival"; footKeys.value = [[["g", "e"], "events"]]; }, []);
  const again = () => { topics.again(); events.again(); };
  useEffect(() => { const timer = setInterval(() => !document.hidden && again(), 5000); return () => clearInterval(timer); }, [topic]);
  return html`<main id="main" tabindex="-1"><header class="rh"><div class="grow"><h1>Events and waits</h1><p class="facts"><span>An event wakes the runs that wait for its topic; until a run waits for it, it is kept.</span></p></div><div class="bar">${may("verbs") && html`<${Button} onClick=${() => setAnswering(true)}>Answer an external step…<//><${Button} onClick=${() => setSending({ topic })}>Send an event…<//>`}</div></header>
    ${topics.problem && html`<${Problem} problem=${topics.problem} again=${topics.again} />`}
    <div class="ev2"><section class="panel" aria-label="Topics"><div class="ph"><h2>Topics</h2>${topic && html`<span class="grow"></span><a class="sm" href="events">all</a>`}</div>${!topics.value ? html`<${Loading} rows=${4} />` : topics.value.items.length === 0 ? html`<p class="sec0 i3">No topic yet.</p>` : html`<table><colgroup><col /><col class="w-at" /><col class="w-n" /></colgroup><thead><tr><th>Topic</th><th class="num">Kept</th><th class="num">Waiting</th></tr></thead><tbody>${topics.value.items.map((one) => html`<tr key=${one.topic} aria-selected=${String(one.topic === topic)}><td><a class="m" title=${one.topic} href=${to.events(one.topic)} aria-current=${one.topic === topic ? "true" : undefined}>${one.topic}</a> ${one.nearly_full && html`<${Sign} of="alert" cls="wait" /><span class="vh">nearly full</span>`}</td><td class=${`num ${one.nearly_full ? "wait" : "i2"}`}>${count(one.kept)}<span class="i3">/${count(one.bound)}</span></td><td class="num">${capped(one.waiting)}</td></tr>`)}</tbody></table>`}</section>
    <div>${topic && html`<${Waits} key=${topic} topic=${topic} round=${topics.value} send=${(wait) => setSending({ topic, wait })} />`}
      <section class="panel" aria-label="Events"><div class="ph"><h2>Events${topic && html` of <span class="m">${topic}</span>`}</h2><span class="sm i3">newest first</span></div>${!sent ? html`<${Loading} rows=${4} />` : sent.length === 0 ? html`<p class="sec0 i3">No event has been sent.</p>` : html`<${Wide} label="Events"><table class="evs"><colgroup><col class="w-id" /><col class="w-wf" /><col class="w-st" /><col class="w-st" /><col class="w-at" /><col /></colgroup><thead><tr><th>Event</th><th>Topic</th><th>Key</th><th>Status</th><th class="num">Sent</th><th>Payload</th></tr></thead><tbody>${sent.map((one) => html`<${Event} key=${one.id} one=${one} />`)}</tbody></table><//>`}</section></div></div>
    ${sending && html`<${Send} topic=${sending.topic} wait=${sending.wait} close=${() => setSending(null)} sent=${again} />`}${answering && html`<${Answer} close=${() => setAnswering(false)} />`}</main>`;
}
