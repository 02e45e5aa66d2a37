// Words for numbers, sizes, times and values. Everything returns plain text; nothing here makes markup.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const LINES = /[\r\n\t]+/g;

export const MINUTE = 60_000, HOUR = 3_600_000, DAY = 86_400_000;

export const count = (n) => (n === null || n === undefined ? "–" : Number(n).toLocaleString("en-US"));

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${Number(n) === 1 ? one : many}`;
}

export function size(n) {
  if (n === null || n === undefined) return "–";
  let at = 0, left = Number(n);
  while (left >= 1024 && at < UNITS.length - 1) { left /= 1024; at += 1; }
  return `${at === 0 ? left : left.toFixed(left < 10 ? 1 : 0)} ${UNITS[at]}`;
}

// A number that a person compares with others: at most seven digits that say something.
export function number(n) {
  if (typeof n === "bigint") return n.toLocaleString("en-US");
  if (!Number.isFinite(n)) return String(n);
  if (Number.isInteger(n)) return Math.abs(n) < 1e15 ? n.toLocaleString("en-US") : String(n);
  const abs = Math.abs(n);
  if (abs >= 1e9 || abs < 1e-4) return n.toExponential(4);
  return n.toLocaleString("en-US", { maximumSignificantDigits: 7 });
}

// A number on an axis, where there is little room.
export function brief(n) {
  const abs = Math.abs(n);
  if (abs >= 1e9) return `${trimmed(n / 1e9)}G`;
  if (abs >= 1e6) return `${trimmed(n / 1e6)}M`;
  if (abs >= 1e4) return `${trimmed(n / 1e3)}k`;
  if (abs > 0 && abs < 1e-3) return n.toExponential(0);
  return trimmed(n);
}

const trimmed = (n) => String(Number(n.toPrecision(4)));

export function time(ms, digits = 3) {
  if (ms === null || ms === undefined) return "–";
  const at = new Date(Math.floor(ms));
  if (Number.isNaN(at.getTime())) return String(ms);
  const text = at.toISOString();
  const [day, clock] = [text.slice(0, -14), text.slice(-13, -1)];
  if (digits === 6) {
    const micros = Math.round((ms - Math.floor(ms)) * 1000);
    return `${day} ${clock}${String(micros).padStart(3, "0")}`;
  }
  return `${day} ${digits === 0 ? clock.slice(0, 8) : digits < 0 ? clock.slice(0, 5) : clock}`;
}

export const iso = (ms) => new Date(Math.floor(ms)).toISOString();

// A time as it comes from a door: text, or a number of milliseconds.
export function instant(value) {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "number") return value;
  const text = /[zZ]|[+-]\d\d:?\d\d$/.test(value) ? value : `${value}Z`;
  const ms = Date.parse(text.replace(" ", "T"));
  return Number.isNaN(ms) ? null : ms;
}

export function span(ms) {
  const abs = Math.abs(ms);
  if (abs < 1) return `${trimmed(ms * 1000)} µs`;
  if (abs < 1000) return `${trimmed(ms)} ms`;
  if (abs < MINUTE) return `${Number((ms / 1000).toPrecision(3))} s`;
  if (abs < HOUR) return `${Math.floor(ms / MINUTE)} m ${Math.round((ms % MINUTE) / 1000) || ""}${Math.round((ms % MINUTE) / 1000) ? " s" : ""}`.trim();
  if (abs < DAY) return `${Math.floor(ms / HOUR)} h${Math.round((ms % HOUR) / MINUTE) ? ` ${Math.round((ms % HOUR) / MINUTE)} m` : ""}`;
  return `${Math.floor(ms / DAY)} d${Math.round((ms % DAY) / HOUR) ? ` ${Math.round((ms % DAY) / HOUR)} h` : ""}`;
}

export function ago(ms, now = Date.now()) {
  const gone = now - ms;
  return gone < 1500 ? "just now" : gone < MINUTE ? `${Math.round(gone / 1000)} s ago` : `${span(gone).split(" ").slice(0, 2).join(" ")} ago`;
}

// A text in which nothing is invisible and nothing turns the line around: such characters are named.
export const visible = (text) => text.replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

// A text in one line, of at most so many characters.
export function line(text, most = 300) {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return visible(cut.replace(LINES, " ⏎ "));
}

// Any value of a cell as text.
export function text(value) {
  if (value === null || value === undefined) return "";
  switch (typeof value) {
    case "string": return value;
    case "number": case "bigint": case "boolean": return String(value);
    default:
      if (value instanceof Date) return value.toISOString();
      if (value instanceof Uint8Array) return `0x${[...value.subarray(0, 64)].map((b) => b.toString(16).padStart(2, "0")).join("")}${value.length > 64 ? "…" : ""}`;
      return JSON.stringify(value, (_, v) => (typeof v === "bigint" ? v.toString() : v instanceof Map ? Object.fromEntries(v) : v));
  }
}

const LEVELS = { fatal: "bad", critical: "bad", crit: "bad", emergency: "bad", alert: "bad", error: "bad", err: "bad", warn: "warn", warning: "warn", notice: "note", info: "", debug: "dim", trace: "dim" };
export const LEVEL_NAMES = new Set(["level", "severity", "severity_text", "loglevel", "log_level", "lvl"]);
export const levelOf = (value) => (typeof value === "string" ? LEVELS[value.toLowerCase().replace(/\d$/, "")] ?? "" : "");
