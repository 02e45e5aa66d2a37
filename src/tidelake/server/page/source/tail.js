// Rows as they are committed. A pause keeps the place, and going on begins there: no line is lost. It does not hold more
// than the last lines.
import { Answer } from "./answer.js";
import { Failure, events } from "./api.js";
import { classes, html, useEffect, useMemo, useRef, useState } from "./core.js";
import { count, instant, text } from "./format.js";
import { Grid } from "./grid.js";
import { RowPanel } from "./row.js";
import { Empty, useAsked } from "./shell.js";
import { adjust, go, route, tableInfo, tables } from "./state.js";
import { useKeys } from "./ask.js";
import { condition } from "./compose.js";

const KEPT = 20_000, AGAIN_MS = 1000;
const KINDS = { timestamp: "time", date: "time", long: "number", int: "number", real: "number", string: "text", bool: "bool", dynamic: "dynamic" };

export function Tail() {
  const { params } = route.value;
  const table = params.table ?? null;
  const info = useAsked(() => (table ? tableInfo(table) : null), [table, tables.value === null]).value;
  const [where, setWhere] = useState(params.where ?? ""), [isPaused, setPaused] = useState(false), [status, setStatus] = useState("idle");
  const [failure, setFailure] = useState(null), [turn, setTurn] = useState(0), [open, setOpen] = useState(null);
  const held = useRef({ rows: [], total: 0, at: null, key: "" });
  useEffect(() => {
    const key = `${table}\n${params.where ?? ""}`;
    if (held.current.key !== key) { held.current = { rows: [], total: 0, at: null, key, missed: 0 }; setTurn((was) => was + 1); setOpen(null); }
    if (!table || isPaused || tables.value === null) { setStatus(table ? "paused" : "idle"); return undefined; }
    const stop = new AbortController();
    follow(table, params.where, held.current, stop.signal, { onRows: () => setTurn((was) => was + 1), onStatus: setStatus, onFailure: setFailure });
    return () => stop.abort();
  }, [table, params.where, isPaused, tables.value === null]);
  const answer = useMemo(() => (info ? shown(info, held.current.rows) : null), [info, turn]);
  useKeys({ " ": () => setPaused(!isPaused), Escape: () => setOpen(null) });
  const filter = (path, value, isNot, kind) => {
    const told = condition(path, value, isNot, "kql", kind);
    adjust({ where: params.where ? `(${params.where}) and ${told}` : told });
    setWhere(params.where ? `(${params.where}) and ${told}` : told);
  };
  return html`<section class="tail work">
    <form class="bar" onSubmit=${(event) => { event.preventDefault(); setFailure(null); adjust({ where: where.trim() || null }); }}>
      <label>table <select value=${table ?? ""} onChange=${(event) => go("tail", { table: event.target.value })} aria-label="table"><option value="" disabled>choose</option>${(tables.value ?? []).map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label>
      <input class="condition" value=${where} onInput=${(event) => setWhere(event.target.value)} placeholder="a condition in KQL: level == 'ERROR'" aria-label="condition" spellcheck="false" />
      <button class="quiet">Apply</button>
      <div class="spring"></div>
      <span class=${classes("lamp", status)} role="status">${{ idle: "", listening: "listening", paused: "paused", away: "connecting", failed: "stopped" }[status]}</span>
      ${table && html`<button type="button" class="primary" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Resume" : "Pause"}</button>`}
    </form>
    ${failure && html`<div class="failure" role="alert"><b>Not understood</b> ${failure.message}</div>`}
    ${table && html`<div class="told"><span class="facts">${count(held.current.total)} <span class="dim">rows since it began${held.current.total > KEPT ? `, the last ${count(KEPT)} are shown` : ""}</span></span>${held.current.missed > 0 && html`<span class="warn">${count(held.current.missed)} snapshots could not be read any more</span>`}</div>`}
    ${!table ? html`<${Empty} title="Watch rows as they come">Choose a table. A condition narrows it; the space bar pauses, and nothing is lost meanwhile.</${Empty}>`
      : answer && answer.rows ? html`<div class="answer"><div class="split"><${Grid} answer=${answer} open=${open === null ? null : held.current.rows.length - 1 - open} onOpen=${(at) => { setPaused(true); setOpen(held.current.rows.length - 1 - at); }} onFilter=${filter} label="rows as they come" />
        ${open !== null && html`<${RowPanel} answer=${answer} row=${held.current.rows.length - 1 - open} language="kql" info=${info} filter=${filter} close=${() => setOpen(null)} />`}</div></div>`
      : html`<${Empty} title=${isPaused ? "Paused" : "Waiting for rows"}>What is committed from now on is shown here.</${Empty}>`}
  </section>`;
}

async function follow(table, where, held, stop, { onRows, onStatus, onFailure }) {
  while (!stop.aborted) {
    try {
      onStatus("away");
      const query = new URLSearchParams({ table, language: "kql", ...(where ? { query: where } : {}), ...(held.at ? { from: held.at } : {}) });
      for await (const event of events(`/v1/tail?${query}`, { stop })) {
        onStatus("listening"); // its first event says where it begins
        if (event.id) held.at = event.id;
        if (event.name === "rows") {
          const { rows } = JSON.parse(event.data);
          held.rows.push(...rows);
          held.total += rows.length;
          if (held.rows.length > KEPT) held.rows.splice(0, held.rows.length - KEPT);
        } else if (event.name === "missed") {
          held.missed += 1;
        }
        onFailure(null);
        if (event.data) onRows();
      }
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof Failure && error.status >= 400 && error.status < 500) { onFailure(error); onStatus("failed"); return; }
    }
    if (stop.aborted) return;
    onStatus("away");
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

// The newest first.
function shown(info, rows) {
  const columns = info.columns.map(({ name, type }) => {
    const kind = KINDS[type.split("(")[0]] ?? "other";
    const at = (row) => rows[rows.length - 1 - row]?.[name] ?? null;
    return { name, type, kind, at, raw: kind === "time" ? (row) => instant(at(row)) : kind === "dynamic" ? (row) => (at(row) === null ? null : text(at(row))) : at };
  });
  return new Answer(columns, rows.length);
}

