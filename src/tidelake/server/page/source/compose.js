// Read and change the text of a question just enough to put a time range, a condition or a value into it. Pure: text in,
// text out. It does not check the question: the server does, and its complaints are carried back to the text as typed.
import { iso } from "./format.js";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const LOOKS = new Set(["where", "filter", "take", "limit", "order", "sort", "top", "project", "project-away", "project-keep", "project-reorder", "project-rename", "extend", "serialize", "as"]);

const OTHERS = new Set(["group", "having", "distinct", "join", "union", "intersect", "except", "qualify", "lateral", "pivot", "unpivot"]);
const AGGREGATES = /\b(?:count|sum|avg|mean|min|max|median|mode|first|last|any_value|\w*(?:percentile|quantile|stddev|variance|var_|_agg|collect_|approx_|explode)\w*)\s*\(/i;

// Walk over a text; what is inside quotes, comments and brackets is skipped. Yields [place, character] at the top.
export function* top(text, language) {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at];
    if (c === "'" || c === '"' || (c === "`" && language === "sql")) {
      at = closed(text, at, c, language);
    } else if (language === "sql" ? text.startsWith("--", at) : text.startsWith("//", at) || (language === "promql" && c === "#")) {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end - 1;
    } else if (language === "sql" && text.startsWith("/*", at)) {
      const end = text.indexOf("*/", at);
      at = end < 0 ? text.length : end + 1;
    } else if ("([{".includes(c)) {
      depth += 1;
    } else if (")]}".includes(c)) {
      depth -= 1;
    } else if (depth <= 0) {
      yield [at, c];
    }
  }
}

function closed(text, from, quote, language) {
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === "\\" && language !== "sql") at += 1;
    else if (text[at] === quote) return at;
  }
  return text.length;
}

// The stages of a KQL pipeline: where each begins and ends, and its first word.
export function stages(text) {
  let start = 0;
  const cuts = [];
  for (const [at, c] of top(text, "kql")) {
    if (c === ";" && text.slice(at + 1).trim()) { start = at + 1; cuts.length = 0; }
    if (c === "|") cuts.push(at);
  }
  const ends = [...cuts, text.trimEnd().endsWith(";") ? text.lastIndexOf(";") : text.length];
  let from = start;
  return ends.map((to) => {
    const body = text.slice(from, to);
    const clean = body.replace(/^\s*(?:\/\/[^\n]*\n\s*)*/, "");
    const stage = { from, to, word: /^[\w-]*/.exec(clean)[0].toLowerCase(), text: clean.trim(), begins: to - clean.length };
    from = to + 1;
    return stage;
  });
}

// The table that a question is about, as it names it; null if that is not plain.
export function sourceOf(text, language) {
  if (language === "promql") return null;
  if (language === "sql") {
    for (const [at] of top(text, "sql")) {
      const found = /^from\s+([A-Za-z_][\w.]*|`[^`]+`(?:\.`[^`]+`)*)/i.exec(text.slice(at, at + 200));
      if (found && (at === 0 || /\W/.test(text[at - 1]))) return found[1].replaceAll("`", "");
    }
    return null;
  }
  const first = stages(text)[0]?.text ?? "";
  const found = /^([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)(?=\s|$)/.exec(first);
  return found && !["let", "print", "range", "union", "search", "find", "datatable"].includes(found[1]) && found[1].length === first.length ? found[1] : null;
}

// Whether each row of the answer is a row of the table, so that hits over time mean something.
export function isLook(text, language) {
  if (language === "sql") {
    const { from, others } = clauses(text);
    return from > 0 && /^\s*select\b/i.test(text) && !others.length && Boolean(sourceOf(text, language)) && !AGGREGATES.test(text.slice(0, from));
  }
  return language === "kql" && Boolean(sourceOf(text, language)) && stages(text).slice(1).every((stage) => LOOKS.has(stage.word));
}

export const renderOf = (text) => {
  const last = stages(text).at(-1);
  if (last?.word !== "render") return null;
  const [, kind] = last.text.split(/\s+/);
  return { kind: (kind ?? "table").toLowerCase(), stacked: /kind\s*=\s*stacked/.test(last.text), title: /title\s*=\s*["']([^"']*)["']/.exec(last.text)?.[1] };
};

// What is sent for what was typed: values for $names. back(place) tells where a place was typed.
export function composed(text, language, { range, values = {}, bin } = {}) {
  const edits = [];
  const known = { ...values, ...(range ? { start: new Date(range.start), end: new Date(range.end) } : {}), ...(bin ? { bin } : {}) };
  for (const { name, at, end } of parameters(text, language)) {
    if (known[name] !== undefined) edits.push({ at, end, text: name === "bin" ? known.bin : literal(known[name], language) });
  }
  edits.sort((a, b) => a.at - b.at);
  let sent = "", from = 0;
  const pieces = [];
  for (const edit of edits) {
    sent += text.slice(from, edit.at);
    pieces.push({ at: sent.length, size: edit.text.length, typed: edit.at, end: edit.end });
    sent += edit.text;
    from = edit.end;
  }
  sent += text.slice(from);
  const back = (place) => {
    let moved = 0;
    for (const piece of pieces) {
      if (place < piece.at) break;
      if (place < piece.at + piece.size) return piece.typed;
      moved = piece.end - piece.typed - piece.size + moved;
    }
    return place + moved;
  };
  return { sent, back };
}

// The $names in a text, outside of quotes and comments.
export function parameters(text, language) {
  const found = [];
  for (const part of outside(text, language)) {
    for (const match of text.slice(part.from, part.to).matchAll(/\$([A-Za-z_]\w*)/g)) {
      found.push({ name: match[1], at: part.from + match.index, end: part.from + match.index + match[0].length });
    }
  }
  return found;
}

function* outside(text, language) {
  let from = 0;
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at];
    if (c === "'" || c === '"') {
      yield { from, to: at };
      at = closed(text, at, c, language);
      from = at + 1;
    } else if (text.startsWith(language === "sql" ? "--" : "//", at)) {
      yield { from, to: at };
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end;
      from = at + 1;
    }
  }
  if (from < text.length) yield { from, to: text.length };
}

export function literal(value, language) {
  if (value instanceof Date) return language === "sql" ? `TIMESTAMP '${iso(value.getTime())}'` : `datetime(${iso(value.getTime())})`;
  if (value === null || value === undefined) return "null";
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean") return String(value);
  return quoted(String(value), language);
}

export function quoted(text, language) {
  if (language === "sql") return `'${text.replaceAll("'", "''")}'`;
  return `"${text.replace(/[\\"]/g, "\\$&").replace(/[\n\r\t]/g, (c) => ({ "\n": "\\n", "\r": "\\r", "\t": "\\t" })[c])}"`;
}

// A column, or a path into one, as each language writes it.
export function column(path, language) {
  const parts = Array.isArray(path) ? path : [path];
  if (language === "sql") {
    const first = NAME.test(parts[0]) ? parts[0] : `\`${parts[0].replaceAll("`", "``")}\``;
    return parts.length === 1 ? first : `${first}[${quoted(parts.slice(1).join("."), "sql")}]`;
  }
  return parts.map((part, at) => (NAME.test(part) ? (at ? `.${part}` : part) : at ? `[${quoted(String(part), "kql")}]` : `[${quoted(String(part), "kql")}]`)).join("");
}

// A condition that a value is, or is not, this one.
export function condition(path, value, isNot, language, kind) {
  const name = column(path, language);
  if (value === null || value === undefined) {
    const test = language === "sql" ? `${name} is null` : kind === "text" ? `isempty(${name})` : `isnull(${name})`;
    return isNot ? `not(${test})` : test;
  }
  const told = kind === "time" ? literal(new Date(value), language) : literal(value, language);
  const left = Array.isArray(path) && path.length > 1 && language === "kql" && typeof value === "string" ? `tostring(${name})` : name;
  return `${left} ${isNot ? "!=" : language === "sql" ? "=" : "=="} ${told}`;
}

// The question with one more condition on the table's rows.
export function withCondition(text, language, told) {
  if (language === "kql") {
    const all = stages(text);
    let last = 0;
    while (all[last + 1]?.word === "where") last += 1;
    const at = all[last].begins + all[last].text.length;
    return `${text.slice(0, at)}\n| where ${told}${text.slice(at)}`;
  }
  for (const [at] of top(text, "sql")) {
    if (at && /\w/.test(text[at - 1])) continue;
    const found = /^where\s+/i.exec(text.slice(at, at + 20));
    if (found) return `${text.slice(0, at)}where ${told} and ${text.slice(at + found[0].length)}`;
    if (/^(group\s+by|order\s+by|limit|having)\b/i.test(text.slice(at, at + 20))) return `${text.slice(0, at).trimEnd()}\nwhere ${told}\n${text.slice(at)}`;
  }
  return `${text.trimEnd().replace(/;$/, "")}\nwhere ${told}`;
}

// Hits over time of a question that looks at rows: its conditions, counted in windows, by level where there is one.
export function hits(text, language, { timeColumn, bin, level }) {
  const ts = column(timeColumn, language), by = level ? `, ${column(level, language)}` : "";
  if (language === "kql") {
    const all = stages(text);
    const lets = text.slice(0, all[0].from);
    const kept = all.slice(1).filter((stage) => ["where", "filter", "extend"].includes(stage.word)).map((stage) => `| ${stage.text}`);
    return `${lets}${all[0].text}\n${kept.join("\n")}\n| summarize hits = count() by ${ts} = bin(${ts}, ${binText(bin)})${by} | order by ${ts} asc`;
  }
  const { from, order } = clauses(text);
  const micros = bin * 1000;
  return `select timestamp_micros(unix_micros(${ts}) - pmod(unix_micros(${ts}), ${micros})) as ${ts}${by}, count(*) as hits\n${text.slice(from, order)}\ngroup by 1${level ? ", 2" : ""} order by 1`;
}

// Where clauses of a SELECT begin: its FROM, and what comes after the rows are chosen. others: those that make other
// rows of them.
function clauses(text) {
  const found = { from: -1, order: text.trimEnd().replace(/;$/, "").length, others: [] };
  for (const [at] of top(text, "sql")) {
    if (at && /[\w.]/.test(text[at - 1])) continue;
    const word = /^[a-z]+\b/i.exec(text.slice(at, at + 12))?.[0].toLowerCase();
    if (word === "from" && found.from < 0) found.from = at;
    else if (["order", "sort", "limit", "offset"].includes(word) && found.from >= 0) found.order = Math.min(found.order, at);
    else if (OTHERS.has(word)) found.others.push(word);
  }
  return found;
}

const BINS = [1, 2, 5, 10, 50, 100, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 7 * 86400e3, 30 * 86400e3];
export const binFor = (ms, windows) => BINS.find((each) => ms / each <= windows) ?? BINS.at(-1);
export const binText = (ms) => (ms < 1000 ? `${ms}ms` : ms < 60_000 ? `${ms / 1000}s` : ms < 3_600_000 ? `${ms / 60_000}m` : ms < 86_400_000 ? `${ms / 3_600_000}h` : `${ms / 86_400_000}d`);
