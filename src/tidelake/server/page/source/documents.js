// Saved questions and dashboards: documents of the lake, each save a new revision. Whoever saves over another's revision
// is told instead. It does not run what it keeps.
import { get, post, session } from "./api.js";
import { html, signal, useEffect, useRef, useState } from "./core.js";
import { line } from "./format.js";
import { address, say } from "./state.js";

export const questions = signal([]);
const asking = signal(null);

const place = (kind, name) => `/v1/documents/${kind}/${encodeURIComponent(name)}`;

export const listed = async (kind) => (await get(`/v1/documents/${kind}`)).documents;
export const read = (kind, name) => get(place(kind, name));
export const revisions = async (kind, name) => (await get(`${place(kind, name)}/revisions`)).revisions;
export const write = async (kind, name, body, revision) => (await post(place(kind, name), { body, revision }, { method: "PUT" })).json();
export const remove = (kind, name, revision) => post(place(kind, name), { revision }, { method: "DELETE" });

export async function refresh() {
  questions.value = await listed("question").catch(() => []);
}

export async function saveQuestion({ text, language, params }) {
  const name = await nameFor("Save this question", questions.value.find((each) => each.body.text === text)?.name ?? "");
  if (!name) return;
  const known = questions.value.find((each) => each.name === name);
  try {
    const values = Object.fromEntries(Object.entries(params).filter(([key]) => key.startsWith("p.") || key === "kind"));
    await write("question", name, { text, language, values }, known?.revision ?? 0);
    say(`saved as ${name}`);
    await refresh();
  } catch (error) {
    say(error.message, "bad");
  }
}

export const nameFor = (title, value = "") => new Promise((done) => (asking.value = { title, value, done }));

export function NameDialog() {
  const asked = asking.value, node = useRef(), [name, setName] = useState("");
  useEffect(() => { if (asked) { setName(asked.value); node.current.showModal(); } }, [asked]);
  if (!asked) return null;
  const end = (value) => { asking.value = null; asked.done(value); };
  return html`<dialog ref=${node} class="name" aria-label=${asked.title} onClose=${() => end(null)}>
    <form onSubmit=${(event) => { event.preventDefault(); if (name.trim()) end(name.trim()); }}>
      <h2>${asked.title}</h2>
      <input autofocus maxlength="120" aria-label="name" placeholder="a name" value=${name} onInput=${(event) => setName(event.target.value)} />
      <div class="buttons"><button type="button" class="quiet" onClick=${() => node.current.close()}>Cancel</button><button class="primary" disabled=${!name.trim()}>Save</button></div>
    </form>
  </dialog>`;
}

export const questionAddress = ({ body }) => address("ask", { q: body.text, l: body.language === "kql" ? null : body.language, ...body.values });

export function Saved() {
  useEffect(() => { if (session.value) refresh(); }, [session.value]);
  if (!questions.value.length) return null;
  return html`<section class="fields" aria-label="saved questions"><h3>saved</h3>${questions.value.map((each) => html`<a key=${each.name} class="table" href=${questionAddress(each)} title=${each.body.text}><span class="name">${line(each.name, 60)}</span></a>`)}</section>`;
}
