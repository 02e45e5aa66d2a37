// Ask the server that sent this page, and nobody else. The token is kept for this tab only and goes with every request
// in a header, never in an address. It does not show anything.
import { ofArrow, ofProm } from "./answer.js";
import { signal } from "./core.js";

const TOKEN = "tidelake.token";
const MOST_BYTES = 768 << 20; // of one answer: more is for a download
const PLACE = /\^?\s+line=(\d+) column=(\d+)(?:\s[^\n]*)?$/;

export const isSignedOut = signal(false);
export const session = signal(null);

export class Failure extends Error {
  constructor(message, kind, status) {
    const place = PLACE.exec(message);
    super(message.replace(PLACE, "").split("\n")[0]);
    this.kind = kind;
    this.status = status;
    this.place = place && { line: Number(place[1]), column: Number(place[2]) };
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

export async function call(path, { method = "GET", body, headers = {}, stop, keepStatus = [] } = {}) {
  const own = token.get();
  const sent = { ...headers };
  if (own) sent.authorization = `Bearer ${own}`;
  let answer;
  try {
    answer = await fetch(path, { method, body, headers: sent, signal: stop, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("the server does not answer", "away", 0);
  }
  if (answer.ok || keepStatus.includes(answer.status)) return answer;
  if (answer.status === 401) isSignedOut.value = true;
  throw await failure(answer);
}

async function failure(answer) {
  const text = await answer.text();
  try {
    const told = JSON.parse(text);
    return new Failure(told.error ?? text, told.kind ?? told.errorType ?? "unknown", answer.status);
  } catch {
    return new Failure(text.slice(0, 300) || `the server answered ${answer.status}`, "unknown", answer.status);
  }
}

export async function get(path, parameters = {}, options = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  return (await call(query.size ? `${path}?${query}` : path, options)).json();
}

export async function post(path, value, options = {}) {
  const headers = { "content-type": "application/json", ...options.headers };
  return call(path, { ...options, method: options.method ?? "POST", headers, body: JSON.stringify(value) });
}

// Ask in SQL or KQL; heard is told how many bytes have come. About: a range, a snapshot or a time to look back to.
export async function ask(language, text, { stop, heard, about = {} } = {}) {
  const answer = await post("/v1/query", { [language]: text, format: "arrow", ...about }, { stop });
  return ofArrow(await whole(answer, heard));
}

export async function askProm(text, { start, end, step, stop }) {
  const form = new URLSearchParams({ query: text, start: start / 1000, end: end / 1000, step });
  const answer = await call("/api/v1/query_range", { method: "POST", body: form, stop });
  return ofProm((await answer.json()).data);
}

async function whole(answer, heard) {
  const parts = [];
  let size = 0;
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    heard?.(size);
    if (size > MOST_BYTES) {
      await reader.cancel();
      throw new Failure("the answer is larger than this page can hold: download it, or ask for less of it", "too_large", 0);
    }
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

// The same question once more, as a file.
export async function download(language, text, format, name, about = {}) {
  const answer = await post("/v1/query", { [language]: text, format, ...about });
  save(await answer.blob(), `${name}.${format}`);
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Events as the server sends them, each with its name, its id and what it says, which may be nothing: then only the
// place has moved. Ends when stop does.
export async function* events(path, { stop, headers = {} } = {}) {
  const answer = await call(path, { stop, headers: { accept: "text/event-stream", ...headers } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split(/\r?\n\r?\n/);
    held = blocks.pop();
    for (const block of blocks) {
      const event = { name: "message", id: null, data: [] };
      for (const each of block.split(/\r?\n/)) {
        const [field, ...rest] = each.split(":");
        const told = rest.join(":").replace(/^ /, "");
        if (field === "event") event.name = told;
        else if (field === "id") event.id = told;
        else if (field === "data") event.data.push(told);
      }
      if (event.data.length || event.id) yield { ...event, data: event.data.join("\n") };
    }
  }
}
