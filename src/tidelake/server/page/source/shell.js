// The frame around every view: where one can go, who is signed in, messages, and help for the keyboard. It does not
// know what views show.
import { isSignedOut, session } from "./api.js";
import { classes, html, signal, useEffect, useRef, useState } from "./core.js";
import { address, messages, route, setTheme, signIn, signOut, tablesFailure, theme } from "./state.js";

export const VIEWS = [
  { id: "ask", name: "Ask", key: "a" },
  { id: "tail", name: "Tail", key: "l" },
  { id: "tables", name: "Tables", key: "t" },
  { id: "boards", name: "Dashboards", key: "d" },
  { id: "health", name: "Health", key: "h" },
];
export const isHelp = signal(false);

const KEYS = [
  ["Ctrl ↵", "run the question"], ["/", "to the editor"], ["Esc", "out of the editor, to the rows"], ["r", "to the rows"], ["↑ ↓ ← →", "move through rows"], ["↵", "open a row"],
  ["=  −", "only, or not, this value"], ["s", "sort by this column"], ["c C", "copy this value, the row"], ["Esc", "close, or stop"], ["p", "pick a time"], ["1 2 3", "rows, chart, plan"],
  ["g a", "ask"], ["g l", "tail"], ["g t", "tables"], ["g d", "dashboards"], ["g h", "health"], ["?", "this list"],
];

export function Shell({ children }) {
  if (isSignedOut.value) return html`<${SignIn} />`;
  const { view } = route.value;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>skip to the view</a>
    <header class="top">
      <a class="brand" href=${address("ask")} aria-label="Tidelake"><img src="page/mark.svg" alt="" width="20" height="20" /><span>Tidelake</span></a>
      <nav aria-label="views">${VIEWS.map((each) => html`<a key=${each.id} href=${address(each.id)} class=${classes("tab", (view === each.id || (each.id === "tables" && view === "table") || (each.id === "boards" && view === "board")) && "on")} aria-current=${view === each.id ? "page" : undefined}>${each.name}</a>`)}</nav>
      <div class="spring"></div>
      <button class="icon" title="keyboard (?)" aria-label="keyboard shortcuts" onClick=${() => (isHelp.value = true)}>?</button>
      <${Theme} />
      <${Who} />
    </header>
    ${tablesFailure.value && html`<div class="banner bad" role="alert">${tablesFailure.value.message}</div>`}
    <main id="main" tabindex="-1">${children}</main>
    <div class="messages" role="status" aria-live="polite">${messages.value.map((each) => html`<div key=${each.id} class=${`message ${each.kind}`}>${each.text}</div>`)}</div>
    ${isHelp.value && html`<${Help} />`}`;
}

function Theme() {
  const next = { auto: "light", light: "dark", dark: "auto" }[theme.value];
  const sign = { auto: "◐", light: "○", dark: "●" }[theme.value];
  return html`<button class="icon" title=${`theme: ${theme.value}`} aria-label=${`theme ${theme.value}, change to ${next}`} onClick=${() => setTheme(next)}>${sign}</button>`;
}

function Who() {
  const who = session.value;
  if (!who) return null;
  if (who.is_anonymous) return html`<span class="who dim" title="this server asks for no token">open</span>`;
  return html`<span class="who" title=${`${who.roles.join(", ")} of ${[...who.namespaces, ...who.tables].join(", ") || "everything"}`}>${who.name}</span>
    <button class="quiet" onClick=${signOut}>Sign out</button>`;
}

function SignIn() {
  const [value, setValue] = useState(""), [failure, setFailure] = useState(null), [isBusy, setBusy] = useState(false);
  const field = useRef();
  useEffect(() => field.current?.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    try {
      await signIn(value);
    } catch (error) {
      setFailure(error.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<div class="signin"><form onSubmit=${submit}>
    <img src="page/mark.svg" alt="" width="40" height="40" />
    <h1>Tidelake</h1>
    <p class="dim">This server asks for a token. Whoever looks after it makes one with <code>tidelake tokens create</code>.</p>
    <label for="token">Token</label>
    <input id="token" ref=${field} type="password" autocomplete="off" spellcheck="false" value=${value} onInput=${(event) => setValue(event.target.value)} placeholder="tl_…" aria-invalid=${Boolean(failure)} aria-describedby="token-told" />
    <p id="token-told" class=${failure ? "bad" : "dim"} role=${failure ? "alert" : undefined}>${failure ?? "It is kept in this tab, until the tab is closed."}</p>
    <button class="primary" disabled=${isBusy || !value.trim()}>Sign in</button>
  </form></div>`;
}

function Help() {
  const place = useRef();
  useEffect(() => place.current?.showModal(), []);
  return html`<dialog ref=${place} class="help" aria-label="keyboard shortcuts" onClose=${() => (isHelp.value = false)} onClick=${(event) => event.target === place.current && place.current.close()}>
    <h2>Keyboard</h2>
    <dl>${KEYS.map(([keys, what]) => html`<div key=${keys}><dt>${keys.split(" ").filter(Boolean).map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button class="primary">Close</button></form>
  </dialog>`;
}

// A place that has nothing to show yet, and what to do about it.
export function Empty({ title, children }) {
  return html`<div class="empty"><div class="wave" aria-hidden="true"></div><h2>${title}</h2>${children && html`<div class="dim">${children}</div>`}</div>`;
}

export function Wrong({ failure, onRetry }) {
  return html`<div class="wrong" role="alert"><b>${failure.kind === "away" ? "No answer" : "That did not work"}</b><span>${failure.message}</span>${onRetry && html`<button class="quiet" onClick=${onRetry}>Try again</button>`}</div>`;
}

export function Busy({ children = "loading" }) {
  return html`<div class="busy" role="status"><span class="spin" aria-hidden="true"></span> ${children}</div>`;
}

// A value that is asked for when what it depends on changes; the answer, a failure, or neither yet.
export function useAsked(make, depends) {
  const [found, setFound] = useState({ value: null, failure: null, isBusy: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    setFound((was) => ({ ...was, isBusy: true, failure: null }));
    Promise.resolve().then(() => make(stop.signal)).then(
      (value) => !stop.signal.aborted && setFound({ value, failure: null, isBusy: false }),
      (failure) => !stop.signal.aborted && setFound({ value: null, failure, isBusy: false }),
    );
    return () => stop.abort();
  }, [...depends, turn]);
  return { ...found, again: () => setTurn(turn + 1) };
}
