// The way in: the token of the printed link, or a name and a password.
import { html, useState, useRef, useLayoutEffect } from "../ui.js";
import { me, post } from "../api.js";

export default function Login() {
  const ways = me.value?.login ?? [];
  const [way, setWay] = useState(ways.includes("password") ? "password" : "token");
  const [problem, setProblem] = useState(me.value?.problem ?? null);
  const [busy, setBusy] = useState(false);
  const form = useRef(null);
  useLayoutEffect(() => { document.title = "Log in · Rival"; form.current?.querySelector("input")?.focus(); }, [way]);
  const enter = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(form.current));
    setBusy(true);
    try {
      me.value = await post("session", way === "token" ? { token: given.token.replace(/^.*#token=/, "").trim() } : given);
    } catch (found) {
      setProblem(found);
    }
    setBusy(false);
  };
  return html`<main class="login" id="main"><h1><svg viewBox="0 0 18 18" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" aria-hidden="true"><path d="M3 2v14M3 6c6 0 6 6 12 6M3 6c6 0 6-3 12-3" /></svg>Rival</h1>
    <form class="panel" ref=${form} onSubmit=${enter} aria-label="Log in">
      ${ways.length === 0 && html`<p>The proxy in front of this dashboard logs you in. It has sent no user that is known here.</p>`}
      ${way === "token" && ways.length > 0 && html`<p class="i2">Open the link that <code>rival dashboard</code> or <code>rival dev</code> printed, or paste it here.</p>
        <label for="token">Link or token</label><input class="in" id="token" name="token" type="password" autocomplete="off" required />`}
      ${way === "password" && html`<label for="name">Name</label><input class="in" id="name" name="name" autocomplete="username" required />
        <label for="password">Password</label><input class="in" id="password" name="password" type="password" autocomplete="current-password" required />`}
      ${problem && html`<p class="err" role="alert">${problem.detail ?? problem.title}${problem.retry ? ` Try again in ${problem.retry} s.` : ""}</p>`}
      ${ways.length > 0 && html`<div class="bar"><button class="b acc" type="submit" disabled=${busy}>Log in</button>
        ${ways.length > 1 && html`<button type="button" class="b no" onClick=${() => setWay(way === "token" ? "password" : "token")}>${way === "token" ? "With a password" : "With a token"}</button>`}</div>`}
    </form></main>`;
}
