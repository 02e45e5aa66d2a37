// How the lake is: what upkeep is due, how fast rows come, which questions run now. It looks again every few seconds,
// while somebody sees it. It does not do upkeep.
import { call, get, session } from "./api.js";
import { html, useEffect, useRef, useState } from "./core.js";
import { ago, count, instant, line, plural, size, span } from "./format.js";
import { Busy, Wrong } from "./shell.js";
import { address, say } from "./state.js";

const EVERY_MS = 2000, RATES = 60;

export function Health() {
  const [state, setState] = useState({ status: null, queries: [], failure: null });
  const rates = useRef(new Map());
  const look = async () => {
    try {
      const [status, queries] = await Promise.all([get("/v1/status"), get("/v1/queries")]);
      noted(rates.current, status.tables);
      setState({ status: status.tables, queries: queries.queries, failure: null });
    } catch (failure) {
      setState((was) => ({ ...was, failure }));
    }
  };
  useEffect(() => {
    look();
    const timer = setInterval(() => document.visibilityState === "visible" && look(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const stop = async (id) => {
    try {
      await call(`/v1/queries/${encodeURIComponent(id)}`, { method: "DELETE" });
      say("stopped");
    } catch (error) {
      say(error.message, "bad");
    }
    look();
  };
  if (!state.status) return state.failure ? html`<${Wrong} failure=${state.failure} onRetry=${look} />` : html`<${Busy} />`;
  const due = state.status.filter((each) => each.due?.length), failed = state.status.filter((each) => each.failed);
  return html`<section class="pad scroll">
    <h2>Health</h2>
    ${state.failure && html`<${Wrong} failure=${state.failure} />`}
    <div class="cards">
      <div class="card"><b>${count(state.status.length)}</b><span>tables</span></div>
      <div class="card"><b>${count(sum(state.status, "rows"))}</b><span>rows</span></div>
      <div class="card"><b>${size(sum(state.status, "bytes"))}</b><span>in ${plural(sum(state.status, "extents"), "extent")}</span></div>
      <div class="card"><b>${count(sum(state.status, "hot_rows"))}</b><span>hot rows</span></div>
      <div class=${`card ${failed.length ? "bad" : ""}`}><b>${due.length ? count(due.length) : "none"}</b><span>tables with upkeep due${failed.length ? `, ${failed.length} failed` : ""}</span></div>
    </div>
    <h3>Questions that run</h3>
    ${state.queries.length ? html`<table class="list"><thead><tr><th>question</th><th>who</th><th class="number">for</th><th class="number">read</th><th></th></tr></thead><tbody>${state.queries.map((each) => html`<tr key=${each.id}><td class="clip"><code title=${each.text}>${line(each.text ?? "", 120)}</code></td><td>${line(each.who ?? "", 40)} <span class="dim">${each.door ?? ""}</span></td><td class="number">${span((each.seconds ?? 0) * 1000)}</td><td class="number">${size(each.bytes)}</td><td><button class="danger small" onClick=${() => stop(each.id)}>Stop</button></td></tr>`)}</tbody></table>` : html`<p class="dim">None right now.</p>`}
    <h3>Tables</h3>
    <table class="list"><thead><tr><th>table</th><th class="number">rows</th><th>coming in</th><th class="number">size</th><th class="number">extents</th><th class="number">small</th><th class="number">hot</th><th class="number">snapshots</th><th>oldest</th><th class="number">garbage</th><th>due</th></tr></thead><tbody>
      ${state.status.map((each) => html`<tr key=${each.table}><td><a href=${address(`table/${each.table}`)}>${line(each.table, 60)}</a></td><td class="number">${count(each.rows)}</td><td><${Rate} seen=${rates.current.get(each.table) ?? []} /></td><td class="number">${size(each.bytes)}</td><td class="number">${count(each.extents)}</td><td class="number">${count(each.small_extents)}</td><td class="number">${count(each.hot_rows)}</td><td class="number">${count(each.snapshots)}</td><td>${each.oldest_snapshot ? ago(instant(each.oldest_snapshot)) : "–"}</td><td class="number">${count(each.garbage)}</td><td>${(each.due ?? []).map((one) => html`<span class="chip warn" key=${one}>${one}</span>`)}${each.failed ? html`<span class="chip bad">${each.failed} failed</span>` : ""}</td></tr>`)}</tbody></table>
    <p class="dim small">Tidelake ${session.value?.version} · looks again every ${EVERY_MS / 1000} s</p>
  </section>`;
}

const sum = (rows, name) => rows.reduce((all, each) => all + (each[name] ?? 0), 0);

function noted(rates, tables) {
  const now = Date.now();
  for (const { table, rows } of tables) {
    const seen = rates.get(table) ?? [];
    seen.push({ now, rows });
    rates.set(table, seen.slice(-RATES));
  }
}

function Rate({ seen }) {
  if (seen.length < 2) return html`<span class="dim">–</span>`;
  const steps = seen.slice(1).map((each, at) => Math.max(0, ((each.rows - seen[at].rows) / (each.now - seen[at].now)) * 1000));
  const most = Math.max(...steps, 1), last = steps.slice(-5).reduce((a, b) => a + b, 0) / Math.min(5, steps.length);
  return html`<span class="rate"><svg viewBox=${`0 0 ${RATES} 14`} aria-hidden="true"><polyline points=${steps.map((each, at) => `${RATES - steps.length + at},${13 - (each / most) * 12}`).join(" ")} /></svg> ${count(Math.round(last))}/s</span>`;
}
