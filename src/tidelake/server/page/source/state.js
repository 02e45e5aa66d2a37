// What the whole page shares: the view, which the address holds; the tables there are; theme, messages, history. It does
// not draw.
import { call, get, isSignedOut, session, token } from "./api.js";
import { computed, signal } from "./core.js";
import { instant } from "./format.js";

const HISTORY = "tidelake.history", THEME = "tidelake.theme";
const KEPT = 200;

// The address: #/ask?q=…&l=kql&from=…&to=…
export const route = signal(read());

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, ...rest] = path.split("/").map(decodeURIComponent);
  return { view: view || "ask", rest, params: Object.fromEntries(new URLSearchParams(query)) };
}

export function address(view, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return `#/${view.split("/").map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

export function go(view, params = {}, { replace = false } = {}) {
  const to = address(view, params);
  if (to === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  route.value = read();
}

// Change some of the view's parameters and keep the rest.
export const adjust = (params, options) => go([route.peek().view, ...route.peek().rest].join("/"), { ...route.peek().params, ...params }, options);

addEventListener("hashchange", () => (route.value = read()));
addEventListener("popstate", () => (route.value = read()));

// Times of the view: both in milliseconds, or null for all that is held.
export const range = computed(() => {
  const { from, to } = route.value.params;
  if (!from) return null;
  const relative = /^(\d+)(ms|s|m|h|d)$/.exec(from);
  if (relative) {
    const ms = Number(relative[1]) * { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 }[relative[2]];
    const end = to ? instant(to) : Date.now();
    return { start: end - ms, end, told: from };
  }
  const start = instant(from), end = to ? instant(to) : Date.now();
  return start !== null && end !== null && start < end ? { start, end } : null;
});

export const tables = signal(null);
export const tablesFailure = signal(null);
const known = new Map();

export async function loadTables() {
  try {
    const told = (await get("/v1/tables")).tables;
    tables.value = told.map((each) => (typeof each === "string" ? { name: each } : { ...each, start: instant(each.start), end: instant(each.end) }));
    tablesFailure.value = null;
  } catch (error) {
    tablesFailure.value = error;
    if (tables.value === null) tables.value = [];
  }
  return tables.value;
}

// What a table is; asked again when a commit was seen.
export function tableInfo(name) {
  const listed = tables.peek()?.find((each) => each.name === name);
  const key = `${name}@${listed?.snapshot ?? ""}`;
  if (!known.has(key)) {
    const asking = get(`/v1/tables/${encodeURIComponent(name)}`).then((told) => ({ ...listed, ...told, name, start: instant(told.start), end: instant(told.end), time: told.time ?? told.settings?.time }));
    asking.catch(() => known.delete(key));
    known.set(key, asking);
  }
  return known.get(key);
}

// The full name of a table that a question may name without its namespace.
export function fullName(name) {
  if (!name) return null;
  const own = name.includes(".") ? name : `${session.peek()?.namespace ?? "default"}.${name}`;
  return tables.peek()?.some((each) => each.name === own) ? own : null;
}

export async function begin() {
  try {
    session.value = await get("/v1/session");
    isSignedOut.value = false;
    await loadTables();
  } catch (error) {
    if (error.status === 401) isSignedOut.value = true;
    else tablesFailure.value = error;
  }
}

export async function signIn(value) {
  token.set(value.trim());
  try {
    await call("/v1/session");
  } catch (error) {
    token.set(null);
    throw error;
  }
  await begin();
}

export function signOut() {
  token.set(null);
  session.value = null;
  tables.value = null;
  known.clear();
  begin();
}

export const theme = signal(localStorage.getItem(THEME) ?? "auto");
export const isDark = computed(() => (theme.value === "auto" ? dark.value : theme.value === "dark"));
const media = matchMedia("(prefers-color-scheme: dark)");
const dark = signal(media.matches);
media.addEventListener("change", () => (dark.value = media.matches));

export function setTheme(value) {
  localStorage.setItem(THEME, value);
  theme.value = value;
}

export const messages = signal([]);
let last = 0;

export function say(text, kind = "note") {
  const id = (last += 1);
  messages.value = [...messages.value, { id, text, kind }];
  setTimeout(() => (messages.value = messages.value.filter((each) => each.id !== id)), kind === "bad" ? 8000 : 3500);
}

export const past = signal(stored());

function stored() {
  try {
    const told = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(told) ? told : [];
  } catch {
    return [];
  }
}

export function remember(text, language) {
  const entry = { text, language, at: Date.now() };
  past.value = [entry, ...past.value.filter((each) => each.text !== text)].slice(0, KEPT);
  try {
    localStorage.setItem(HISTORY, JSON.stringify(past.value));
  } catch { /* a full store loses history, not the answer */ }
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("copied");
}
