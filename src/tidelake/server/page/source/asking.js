// One question at a time, from the view that the address holds to its answer: run, stop, what went wrong and where. Also
// what belongs to it: the table it is about, the windows that table does not hold. It does not draw.
import { ask, askProm, call, post } from "./api.js";
import { computed, signal } from "./core.js";
import { binFor, binText, composed, parameters, renderOf, sourceOf } from "./compose.js";
import { instant, iso } from "./format.js";
import { fullName, remember, tableInfo } from "./state.js";

const POINTS = 240;

export const LANGUAGES = { kql: "KQL", sql: "SQL", promql: "PromQL" };

// What a question says besides its text.
export function aboutOf({ range, snapshot, as_of }) {
  const about = {};
  if (range) Object.assign(about, { start: iso(range.start), end: iso(range.end) });
  if (snapshot) about.snapshot = Number(snapshot);
  if (as_of) about.as_of = as_of;
  return about;
}

export const valuesOf = (params) => Object.fromEntries(Object.entries(params).filter(([name]) => name.startsWith("p.")).map(([name, value]) => [name.slice(2), valued(value)]));

const valued = (text) => (/^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text === "true" ? true : text === "false" ? false : text);

export const ownParameters = (text, language) => [...new Set(parameters(text, language).map((each) => each.name))].filter((name) => !["start", "end", "bin"].includes(name));

// A question, run: its state is a signal, so whoever looks is told.
export class Running {
  constructor() {
    this.state = signal({ status: "idle", answer: null, failure: null });
    this.isBusy = computed(() => this.state.value.status === "busy");
    this.stopping = null;
  }

  stop() {
    this.stopping?.abort();
  }

  async run({ text, language, range, params = {}, keep = true }) {
    this.stop();
    const stopping = (this.stopping = new AbortController());
    const began = performance.now();
    this.state.value = { ...this.state.peek(), status: "busy", failure: null, began, heard: 0, text, language };
    const window = range ?? (language === "promql" || /\$(start|end|bin)\b/.test(text) ? await heldWindow(text, language) : null);
    const bin = window ? binText(binFor(window.end - window.start, 100)) : "5m";
    const { sent, back } = composed(text, language, { range: window, values: valuesOf(params), bin });
    const about = aboutOf({ range: language === "promql" ? null : range, snapshot: params.snapshot, as_of: params.as_of });
    try {
      const answer = language === "promql"
        ? await askProm(sent, { start: window.start, end: window.end, step: Math.max(1, Math.ceil((window.end - window.start) / POINTS / 1000)), stop: stopping.signal })
        : await ask(language, sent, { stop: stopping.signal, about, heard: (heard) => (this.state.value = { ...this.state.peek(), heard }) });
      if (stopping.signal.aborted) return;
      if (keep) remember(text, language);
      this.state.value = { status: "done", answer, failure: null, took: performance.now() - began, text, language, range, window: window ?? range, about, sent, render: renderFor(text, language) };
    } catch (error) {
      if (this.stopping !== stopping) return;
      const failure = error.name === "AbortError" ? { message: "stopped", kind: "stopped" } : { message: error.message, kind: error.kind, status: error.status, at: placed(sent, back, error.place) };
      this.state.value = { ...this.state.peek(), status: "failed", failure, took: performance.now() - began };
    }
  }
}

const renderFor = (text, language) => (language === "kql" ? renderOf(text) : language === "promql" ? { kind: "timechart" } : null);

// Where in the typed text a line and a column of the sent one are.
function placed(sent, back, place) {
  if (!place) return undefined;
  const lines = sent.split("\n").slice(0, place.line - 1);
  return back(lines.reduce((size, line) => size + line.length + 1, 0) + place.column - 1);
}

// The full name of the table that a question is about.
export const tableOf = (text, language) => fullName(language === "promql" ? "prom_samples" : sourceOf(text, language));

// The times that the table of a question holds.
async function heldWindow(text, language) {
  const name = tableOf(text, language);
  const info = name ? await tableInfo(name).catch(() => null) : null;
  if (info?.start && info.end && info.end > info.start) return { start: info.start, end: info.end + 1 };
  const end = Date.now();
  return { start: end - 3_600_000, end };
}

// Windows that a table does not hold, between two times: by its coverage, and before and after all that it has. The
// server finds the entities that the question, { language, sent, about }, may be of, in the state that it reads.
export async function gapsOf(info, window, asked, stop = undefined) {
  if (!info || !window) return [];
  const outside = [];
  const slack = Math.max(1, (window.end - window.start) / 100); // a window of the chart may begin before its first row
  if (info.start && window.start < info.start - slack) outside.push({ start: window.start, end: Math.min(info.start, window.end), isWhole: true });
  if (info.end && window.end > info.end + slack) outside.push({ start: Math.max(info.end, window.start), end: window.end, isWhole: true });
  const { bucket, entity = [] } = info.settings ?? {};
  if (!bucket) return outside;
  const query = new URLSearchParams({ start: iso(window.start), end: iso(window.end), limit: 2000 });
  const place = `/v1/coverage/${encodeURIComponent(info.name)}?${query}`;
  const told = await (asked.language === "promql" ? call(place, { stop }) : post(place, { [asked.language]: asked.sent, ...asked.about }, { stop })).then((answer) => answer.json()).catch(() => null);
  if (!told) return outside;
  if (!told.entities_total && entity.length) return [{ start: window.start, end: window.end, isWhole: true }];
  return [...outside, ...cut(told.gaps.map((gap) => ({ start: instant(gap.start), end: instant(gap.end), who: entity.map((name) => gap[name]).join(" · ") })), told.entities_total)];
}

// Gaps of many entities as windows: whole where nobody is held, in part where somebody is.
function cut(gaps, entities) {
  if (entities <= 1) return gaps.map((gap) => ({ start: gap.start, end: gap.end, isWhole: true, who: [gap.who] }));
  const edges = [...new Set(gaps.flatMap((gap) => [gap.start, gap.end]))].sort((a, b) => a - b);
  const parts = [];
  for (let at = 0; at + 1 < edges.length; at += 1) {
    const over = gaps.filter((gap) => gap.start <= edges[at] && gap.end >= edges[at + 1]);
    if (over.length) parts.push({ start: edges[at], end: edges[at + 1], isWhole: over.length >= entities, who: over.map((gap) => gap.who) });
  }
  return parts;
}
