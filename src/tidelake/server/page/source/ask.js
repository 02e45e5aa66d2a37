// The view in which one asks: editor, answer, and what can be done with it. The address holds all of it.
import { Grid, rowsTold } from "./grid.js";
import { Chart, TimeChart, isDrawable } from "./chart.js";
import { LANGUAGES, Running, gapsOf, ownParameters, tableOf } from "./asking.js";
import { ask, download, session } from "./api.js";
import { binFor, binText, column, condition, hits, isLook, sourceOf, withCondition } from "./compose.js";
import { classes, html, useEffect, useMemo, useRef, useState } from "./core.js";
import { Editor } from "./editor.js";
import { LEVEL_NAMES, iso, levelOf, size, span } from "./format.js";
import { Busy, Empty, useAsked } from "./shell.js";
import { Plan } from "./plan.js";
import { RowPanel } from "./row.js";
import { Side } from "./side.js";
import { TimePicker } from "./timepicker.js";
import { alongAxis, edges } from "./series.js";
import { adjust, fullName, go, past, range, route, say, tableInfo, tables } from "./state.js";
import { saveQuestion } from "./documents.js";

const FORMATS = ["csv", "ndjson", "parquet", "arrow"];
const HIT_WINDOWS = 90;

export const questionFor = (table, info) => (info?.time ? `${table}\n| top 1000 by ${column(info.time, "kql")} desc` : `${table}\n| take 1000`);

export function Ask() {
  const { params } = route.value;
  const language = params.l ?? "kql";
  const [draft, setDraft] = useState(params.q ?? ""), [isPicking, setPicking] = useState(false), [turn, setTurn] = useState(0);
  const running = useMemo(() => new Running(), []);
  const editor = useRef(), grid = useRef();
  const state = running.state.value;
  const values = JSON.stringify(Object.entries(params).filter(([name]) => name.startsWith("p.")));
  useEffect(() => setDraft(params.q ?? ""), [params.q, turn]);
  useEffect(() => {
    if (params.q?.trim() && tables.value !== null) running.run({ text: params.q, language, range: range.peek(), params });
  }, [params.q, language, params.from, params.to, params.snapshot, params.as_of, values, params.again, tables.value === null]);
  useEffect(() => () => running.stop(), []);
  const run = (text = draft) => adjust({ q: text, l: language === "kql" ? null : language, row: null, tab: null, again: text === params.q ? String(Date.now() % 1e6) : null });
  const source = fullName(sourceOf(draft, language));
  const info = useAsked(() => (source ? tableInfo(source) : null), [source, tables.value]).value;
  useKeys({ "/": () => editor.current?.focus(), r: () => grid.current?.focus(), p: () => setPicking(true), 1: () => adjust({ tab: "rows" }), 2: () => adjust({ tab: "chart" }), 3: () => adjust({ tab: "plan" }), Escape: () => (running.isBusy.value ? running.stop() : adjust({ row: null })) });
  const filter = (path, value, isNot, kind) => {
    if (language === "promql") return;
    const told = condition(path, value, isNot, language, kind ?? state.answer?.column(Array.isArray(path) ? path[0] : path)?.kind);
    run(withCondition(params.q ?? draft, language, told));
  };
  return html`<div class="ask">
    <${Side} source=${source} onTable=${async (name) => { setTurn(turn + 1); const known = await tableInfo(name).catch(() => null); adjust({ q: questionFor(name, known), l: null, row: null, tab: null, from: null, to: null, snapshot: null }); }} onFilter=${filter} onInsert=${(told) => editor.current?.insert(told)} />
    <section class="work">
      <div class="bar">
        <div class="segments" role="radiogroup" aria-label="language">${Object.entries(LANGUAGES).map(([id, name]) => html`<button key=${id} role="radio" aria-checked=${language === id} class=${classes(language === id && "on")} onClick=${() => adjust({ l: id === "kql" ? null : id, q: null })}>${name}</button>`)}</div>
        <${TimePicker} table=${source} open=${isPicking} setOpen=${setPicking} />
        ${params.snapshot && html`<button class="chip travel" title="back to now" onClick=${() => adjust({ snapshot: null })}>as of snapshot ${params.snapshot} <span aria-hidden="true">×</span></button>`}
        <div class="spring"></div>
        <${Past} onPick=${(entry) => { setTurn(turn + 1); adjust({ q: entry.text, l: entry.language === "kql" ? null : entry.language }); }} />
        ${session.value?.roles.includes("write") && html`<button class="quiet" disabled=${!draft.trim()} onClick=${() => saveQuestion({ text: draft, language, params })}>Save</button>`}
        ${running.isBusy.value ? html`<button class="danger" onClick=${() => running.stop()}>Stop</button>` : html`<button class="primary run" disabled=${!draft.trim()} title="Ctrl + Enter" onClick=${() => run()}>Run</button>`}
      </div>
      <${Parameters} text=${draft} language=${language} params=${params} />
      <${Editor} text=${params.q ?? ""} turn=${turn} language=${language} failure=${state.status === "failed" ? state.failure : null} onChange=${setDraft} onRun=${run} onLeave=${() => grid.current?.focus()} handle=${editor} hint=${{ sql: "select * from obs.logs where level = 'ERROR' limit 100", promql: "rate(http_requests_total[5m])" }[language]} />
      ${state.status === "failed" && html`<div class="failure" role="alert"><b>${state.failure.kind === "stopped" ? "Stopped" : state.failure.status === 400 ? "Not understood" : "Not answered"}</b> ${state.failure.kind === "stopped" ? "" : state.failure.message}</div>`}
      <${Answered} running=${running} params=${params} language=${language} info=${info} filter=${filter} grid=${grid} />
    </section>
  </div>`;
}

function Answered({ running, params, language, info, filter, grid }) {
  const state = running.state.value;
  const { answer } = state;
  const [sort, setSort] = useState(null), [withHits, setHits] = useState(true);
  useEffect(() => setSort(null), [answer]);
  const about = useAsked(() => { const name = tableOf(state.text ?? "", language); return name ? tableInfo(name) : null; }, [state.text, language]).value;
  const window = state.range ?? state.window ?? (about?.start && about.end ? { start: about.start, end: about.end + 1 } : null);
  if (state.status === "idle") return html`<${Start} />`;
  if (!answer) return state.status === "busy" ? html`<${Busy}>asking${state.heard ? ` · ${size(state.heard)}` : ""}</${Busy}>` : html`<div class="fillup"></div>`;
  const drawable = isDrawable(answer);
  const isTable = state.render?.kind === "table";
  const tab = params.tab ?? (state.render && !isTable && answer.rows ? "chart" : "rows");
  const looks = isLook(state.text, language) && about?.time;
  const zoom = (from, to) => adjust({ from: iso(from), to: iso(to), row: null });
  const row = params.row !== undefined && Number(params.row) < answer.rows ? Number(params.row) : null;
  return html`
    ${looks && withHits && html`<${Hits} state=${state} info=${about} window=${window} language=${language} onZoom=${zoom} />`}
    <div class="told">
      <div class="tabs" role="tablist">
        ${["rows", "chart", "plan"].map((each) => html`<button key=${each} role="tab" aria-selected=${tab === each} class=${classes("tab", tab === each && "on")} disabled=${each === "chart" && !drawable} onClick=${() => adjust({ tab: each })}>${{ rows: "Rows", chart: "Chart", plan: "What was read" }[each]}</button>`)}
      </div>
      <span class="facts">${rowsTold(answer)} <span class="dim">· ${span(state.took)}${answer.bytes ? ` · ${size(answer.bytes)}` : ""}</span></span>
      ${state.status === "busy" && html`<${Busy}>asking${state.heard ? ` · ${size(state.heard)}` : ""}</${Busy}>`}
      <div class="spring"></div>
      ${looks && html`<button class="quiet" aria-pressed=${withHits} onClick=${() => setHits(!withHits)}>${withHits ? "Hide" : "Show"} hits</button>`}
      ${language !== "promql" && html`<${Download} state=${state} />`}
    </div>
    <div class="answer" role="tabpanel">
      ${tab === "rows" && (answer.rows ? html`<div class="split"><${Grid} answer=${answer} open=${row} handle=${grid} sort=${sort} label="rows of the answer"
          onOpen=${(at) => adjust({ row: at === null ? null : String(at) }, { replace: row !== null })} onFilter=${filter}
          onSort=${(name) => setSort(sort?.name !== name ? { name, down: false } : sort.down ? null : { name, down: true })} />
        ${row !== null && html`<${RowPanel} answer=${answer} row=${row} language=${language} info=${about} filter=${filter} close=${() => { adjust({ row: null }); grid.current?.focus(); }} />`}</div>`
        : html`<${Empty} title="No rows">${window && about?.start && (window.end < about.start || window.start > about.end) ? html`The range lies outside of what ${about.name} holds. <button class="link" onClick=${() => adjust({ from: null, to: null })}>Look at all that is held</button>` : params.from ? html`Nothing in this range matched. <button class="link" onClick=${() => adjust({ from: null, to: null })}>Look at all that is held</button>` : "Nothing matched."}</${Empty}>`)}
      ${tab === "chart" && html`<${Drawn} state=${state} info=${about} onZoom=${zoom} params=${params} />`}
      ${tab === "plan" && html`<${Plan} state=${state} language=${language} />`}
    </div>`;
}

const KINDS = ["timechart", "areachart", "columnchart", "barchart", "scatterchart", "piechart", "card"];

function Drawn({ state, info, onZoom, params }) {
  const own = state.answer;
  const times = own.columns.find((each) => each.kind === "time");
  const kind = params.kind ?? state.render?.kind ?? (times ? "timechart" : "barchart");
  const window = useMemo(() => state.range ?? edges(times, own.rows), [state.answer, state.range]);
  const gaps = useAsked((stop) => (times ? gapsOf(info, window, state, stop) : []), [state.answer, info, window]).value ?? NONE;
  return html`<div class="drawn">
    <div class="kinds" role="radiogroup" aria-label="kind of chart">${KINDS.map((each) => html`<button key=${each} role="radio" aria-checked=${kind === each} class=${classes("chip", kind === each && "on")} onClick=${() => adjust({ kind: each })}>${each.replace("chart", "") || each}</button>`)}
      ${times && html`<span class="dim small">drag to zoom</span>`}</div>
    <${Chart} answer=${own} render=${{ ...state.render, kind }} gaps=${gaps} window=${window} onZoom=${onZoom} height=${320} />
  </div>`;
}

const NONE = [];

// How many rows match, over time: every look at rows has it above.
function Hits({ state, info, window, language, onZoom }) {
  const found = useAsked(async (stop) => {
    if (!window) return null;
    const bin = binFor(window.end - window.start, HIT_WINDOWS);
    const level = info.columns?.find?.((each) => LEVEL_NAMES.has(each.name.toLowerCase()) && each.type === "string")?.name;
    const text = hits(state.sent, language, { timeColumn: info.time, bin, level });
    if (!text) return null;
    const [answer, gaps] = await Promise.all([ask(language, text, { stop, about: state.about }), gapsOf(info, window, state, stop)]);
    const data = alongAxis(answer);
    if (data) data.series.sort((a, b) => weight(a.name) - weight(b.name));
    return { data, gaps, bin, colours: level ? data?.series.map((each) => levelOf(each.name)) : undefined, level };
  }, [state.answer]);
  if (found.failure || (!found.isBusy && !found.value?.data)) return null;
  return html`<div class="hits" aria-label="hits over time">${found.value?.data ? html`<${TimeChart} data=${found.value.data} kind="bars" stacked=${true} height=${104} gaps=${found.value.gaps} window=${window} onZoom=${onZoom} colours=${found.value.colours} label=${`hits over time, windows of ${binText(found.value.bin)}`} legend=${Boolean(found.value.level)} />` : html`<div class="hits-wait"></div>`}</div>`;
}

const weight = (name) => ["dim", "", "note", "warn", "bad"].indexOf(levelOf(name)) * -1;

function Parameters({ text, language, params }) {
  const names = ownParameters(text, language);
  if (!names.length) return null;
  return html`<div class="parameters">${names.map((name) => html`<label key=${name}>$${name} <input value=${params[`p.${name}`] ?? ""} placeholder="value" onChange=${(event) => adjust({ [`p.${name}`]: event.target.value })} /></label>`)}</div>`;
}

function Past({ onPick }) {
  const place = useRef();
  const list = past.value;
  return html`<details class="menu" ref=${place}><summary class="quiet">History</summary><div class="menu-body wide" role="menu">
    ${list.length ? list.slice(0, 40).map((entry) => html`<button key=${entry.at} role="menuitem" onClick=${() => { place.current.open = false; onPick(entry); }}><code>${entry.text.length > 240 ? `${entry.text.slice(0, 240)}…` : entry.text}</code><span class="dim small">${LANGUAGES[entry.language]} · ${iso(entry.at).slice(0, 16).replace("T", " ")}</span></button>`) : html`<p class="dim pad">What you ask is kept here, in this browser.</p>`}
  </div></details>`;
}

function Download({ state }) {
  const place = useRef();
  const get = async (format) => {
    place.current.open = false;
    try {
      await download(state.language, state.sent, format, "answer", state.about);
    } catch (error) {
      say(error.message, "bad");
    }
  };
  return html`<details class="menu right" ref=${place}><summary class="quiet">Download</summary><div class="menu-body" role="menu">${FORMATS.map((each) => html`<button key=${each} role="menuitem" onClick=${() => get(each)}>${each === "csv" || each === "ndjson" ? each.toUpperCase() : each[0].toUpperCase() + each.slice(1)}</button>`)}</div></details>`;
}

function Start() {
  if (tables.value === null) return html`<${Busy} />`;
  if (!tables.value.length) return html`<${Empty} title="The lake is empty"><p>Send rows to this server, or load a file:</p><pre>tidelake ingest obs.logs app.ndjson</pre></${Empty}>`;
  const largest = [...tables.value].sort((a, b) => (b.rows ?? 0) - (a.rows ?? 0)).slice(0, 6);
  return html`<${Empty} title="Ask something">
    <p>Type a question above and press <kbd>Ctrl</kbd> <kbd>↵</kbd>, or look at a table:</p>
    <div class="starts">${largest.map((each) => html`<button key=${each.name} class="quiet" onClick=${async () => go("ask", { q: questionFor(each.name, await tableInfo(each.name).catch(() => null)) })}>${each.name}</button>`)}</div>
  </${Empty}>`;
}

// Keys of a view, while nobody types.
export function useKeys(acts) {
  const latest = useRef(acts);
  latest.current = acts;
  useEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.composedPath()[0];
      if (target.matches?.("input, textarea, select, [contenteditable=true], [contenteditable=true] *") || target.isContentEditable) return;
      const act = latest.current[event.key];
      if (act) { event.preventDefault(); act(); }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

