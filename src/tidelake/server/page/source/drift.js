// How a table's schema came to be: a lane for each column that came later or grew, along the snapshots that brought it.
// It does not know of values that did not fit: the fields have those.
import { get } from "./api.js";
import { questionFor } from "./ask.js";
import { html } from "./core.js";
import { ago, count, instant, line, plural, time } from "./format.js";
import { Busy, Empty, Wrong, useAsked } from "./shell.js";
import { address } from "./state.js";

const LANES = 200;

export function Drift({ name, info }) {
  const { value, failure } = useAsked(() => get(`/v1/tables/${encodeURIComponent(name)}/drift`), [name, info.snapshot]);
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (!value) return html`<${Busy} />`;
  const [first, ...later] = value.versions.map((each) => ({ ...each, at: instant(each.at) }));
  if (!later.length) return html`<${Empty} title="No drift">Its ${plural(first.changes.length, "column")} are what they were from the start.</${Empty}>`;
  const lanes = lanesOf(first, later), last = value.snapshot;
  const at = (snapshot) => `${(((snapshot ?? 1) - 1) / last) * 100}%`;
  const look = (snapshot) => address("ask", { q: questionFor(name, info), snapshot: snapshot === last ? null : snapshot });
  const told = ({ was, now }) => (was ? `${was} → ${now}` : now);
  return html`<p class="dim">${plural(first.changes.length, "column")} from the start, ${plural(later.length, "version")} since${value.total > value.versions.length ? `, the newest of ${count(value.total)}` : ""}. A lane begins where a column came, and changes its colour where the type grew.</p>
    <div class="drift" role="list" aria-label="columns that came later or grew">${[...lanes].slice(0, LANES).map(([column, parts]) => html`<div key=${column} role="listitem" class="lane"><span class="clip" title=${column}>${line(column, 60)}</span>
      <div class="track">${parts.map((part, step) => html`<a key=${step} href=${look(part.snapshot ?? 1)} style=${{ left: at(part.snapshot), right: `calc(100% - ${parts[step + 1] ? at(parts[step + 1].snapshot) : "100%"})`, background: `var(--series-${step % 10})` }} title=${`snapshot ${part.snapshot ?? "unknown"}${part.at ? `, ${time(part.at, 0)}` : ""}: ${column} ${told(part)}`}>${line(part.now, 24)}</a>`)}</div></div>`)}
      <div class="lane"><span></span><div class="ends dim small"><span>snapshot 1</span><span>${last}</span></div></div></div>
    ${lanes.size > LANES && html`<p class="dim">${count(lanes.size - LANES)} more columns</p>`}
    <table class="list"><thead><tr><th class="number">version</th><th class="number">snapshot</th><th>when</th><th>by</th><th>column</th><th>change</th><th></th></tr></thead><tbody>
    ${later.toReversed().map((each) => each.changes.slice(0, 50).map((change, step) => html`<tr key=${`${each.version}:${change.column}`}><td class="number">${step ? "" : each.version}</td><td class="number">${step ? "" : each.snapshot ?? "–"}</td><td>${step ? "" : each.at ? html`${time(each.at, 0)} <span class="dim">${ago(each.at)}</span>` : html`<span class="dim">before what is retained</span>`}</td><td>${step ? "" : each.operation}</td><td>${line(change.column, 60)}</td><td class=${change.was ? "warn" : ""}>${change.was ? told(change) : `new, ${change.now}`}</td><td>${!step && each.snapshot && html`<a href=${look(each.snapshot)}>look at it</a>`}</td></tr>`))}</tbody></table>`;
}

function lanesOf(first, later) {
  const lanes = new Map(), began = new Map(first.changes.map((each) => [each.column, { ...each, snapshot: 1, at: first.at }]));
  for (const { snapshot, at, changes } of later) {
    for (const change of changes) {
      if (!lanes.has(change.column)) lanes.set(change.column, began.has(change.column) ? [began.get(change.column)] : []);
      lanes.get(change.column).push({ ...change, snapshot, at });
    }
  }
  return lanes;
}
