// A whole trace: its spans as a waterfall, and the lines that were logged on the way. It does not know more of OTLP than
// the names of its columns.
import { ask } from "./api.js";
import { quoted } from "./compose.js";
import { classes, html, useState } from "./core.js";
import { iso, line, plural, span, text, time } from "./format.js";
import { Busy, Empty, Wrong, useAsked } from "./shell.js";
import { address, route, tableInfo, tables } from "./state.js";
import { Leaf, Tree, isTree } from "./tree.js";

const MOST = 5000;

export function Trace() {
  const { rest, params } = route.value, id = rest[0] ?? "";
  const found = useAsked((stop) => load(id, params.table, stop), [id, params.table, tables.value === null]);
  const [open, setOpen] = useState(null);
  if (found.failure) return html`<${Wrong} failure=${found.failure} onRetry=${found.again} />`;
  if (!found.value) return html`<${Busy}>gathering the trace</${Busy}>`;
  const { spans, lines } = found.value;
  if (!spans.length && !lines.length) return html`<${Empty} title="Nothing of this trace">No table that can be seen has rows of <code>${line(id, 80)}</code>.</${Empty}>`;
  const start = Math.min(...spans.map((each) => each.start), ...lines.map((each) => each.at)), end = Math.max(...spans.map((each) => each.start + each.length), ...lines.map((each) => each.at), start + 0.001);
  const place = (ms) => `${((ms - start) / (end - start)) * 100}%`;
  const services = [...new Set(spans.map((each) => each.service))];
  return html`<div class="trace pad">
    <h2>Trace <code>${line(id, 80)}</code></h2>
    <p class="dim">${time(start, 3)} UTC · ${end - start > 0.01 ? span(end - start) : "one moment"} · ${plural(spans.length, "span")} of ${plural(services.length, "service")} · ${plural(lines.length, "line")}
      · <a href=${address("ask", { q: params.table ? `${params.table}\n| where trace_id == ${quoted(id, "kql")}` : "" })}>ask about it</a></p>
    <div class="waterfall" role="treegrid" aria-label="spans">
      ${spans.map((each) => html`<div key=${each.id} role="row" aria-level=${each.depth + 1} class=${classes("span", each.isBad && "bad", open === each.id && "open")}>
        <button role="gridcell" class="span-name" style=${{ paddingLeft: `${8 + each.depth * 14}px` }} aria-expanded=${open === each.id} onClick=${() => setOpen(open === each.id ? null : each.id)}><b>${line(each.service, 40)}</b> ${line(each.name, 80)}</button>
        <div role="gridcell" class="span-track" aria-label=${`${span(each.length)} from ${span(each.start - start)}`}><i style=${{ left: place(each.start), width: `max(2px, ${(each.length / (end - start)) * 100}%)`, background: `var(--series-${services.indexOf(each.service) % 10})` }}></i><span style=${{ left: place(each.start) }}>${span(each.length)}</span></div>
        ${open === each.id && html`<div class="span-more"><${Tree} value=${each.row} path=${[]} open=${1} /></div>`}
      </div>`)}
      ${lines.map((each, at) => html`<div key=${`line-${at}`} role="row" class=${classes("span log", each.isBad && "bad", open === `line-${at}` && "open")}>
        <button role="gridcell" class="span-name" aria-expanded=${open === `line-${at}`} onClick=${() => setOpen(open === `line-${at}` ? null : `line-${at}`)}><b>${line(each.service, 40)}</b> ${line(each.message, 120)}</button>
        <div role="gridcell" class="span-track"><i class="dot" style=${{ left: place(each.at) }}></i><span style=${{ left: place(each.at) }}>+${span(each.at - start)}</span></div>
        ${open === `line-${at}` && html`<div class="span-more"><${Shown} value=${each.row} /></div>`}
      </div>`)}
    </div>
  </div>`;
}

const Shown = ({ value }) => (isTree(value) ? html`<${Tree} value=${value} path=${[]} open=${1} />` : html`<${Leaf} value=${value} />`);

async function load(id, from, stop) {
  const names = (tables.peek() ?? []).map((each) => each.name);
  const spansIn = names.filter((name) => name.endsWith(".otel_spans"));
  const linesIn = [...new Set([from, ...names.filter((name) => name.endsWith(".otel_logs"))])].filter((name) => name && !spansIn.includes(name));
  const of = async (name) => {
    const info = await tableInfo(name);
    if (!info.columns.some((each) => each.name === "trace_id")) return [];
    const answer = await ask("kql", `${name} | where trace_id == ${quoted(id, "kql")} | take ${MOST}`, { stop });
    return Array.from({ length: answer.rows }, (_, row) => ({ ...answer.row(row), "#time": answer.column(info.time)?.raw(row) }));
  };
  const [spans, lines] = await Promise.all([Promise.all(spansIn.map(of)), Promise.all(linesIn.map(of))]);
  return { spans: nested(spans.flat()), lines: lines.flat().map(logged).sort((a, b) => a.at - b.at) };
}

const shown = (row) => Object.fromEntries(Object.entries(row).filter(([name, value]) => name !== "#time" && value !== null && value !== "").map(([name, value]) => [name, typeof value === "bigint" ? value.toString() : /^(ts|time|timestamp)$/.test(name) && typeof value === "number" ? iso(value) : value]));

const logged = (row) => ({ at: row["#time"], service: text(row.service_name ?? row.service ?? row.host ?? ""), message: text(row.message ?? row.body ?? row.event_name ?? ""), isBad: /err|fatal|crit/i.test(text(row.level ?? row.severity_text ?? "")), row: shown(row) });

// Spans in the order of a tree: each after its parent, those of one parent by their start.
function nested(rows) {
  const all = rows.map((row) => ({
    id: text(row.span_id), parent: text(row.parent_span_id), name: text(row.name), service: text(row.service_name),
    start: row.start_time_unix_nano ? Number(row.start_time_unix_nano) / 1e6 : row["#time"], length: Number(row.duration_nano ?? 0) / 1e6,
    isBad: row.status_code === "ERROR", row: shown(row), depth: 0,
  }));
  const ids = new Set(all.map((each) => each.id)), below = Map.groupBy(all, (each) => (ids.has(each.parent) && each.parent !== each.id ? each.parent : ""));
  const found = [], seen = new Set();
  const walk = (parent, depth) => {
    for (const each of (below.get(parent) ?? []).sort((a, b) => a.start - b.start)) {
      if (seen.has(each)) continue;
      seen.add(each);
      found.push({ ...each, depth: Math.min(depth, 24) });
      if (each.id) walk(each.id, depth + 1);
    }
  };
  walk("", 0);
  for (const each of all) if (!seen.has(each)) found.push(each); // parents that name each other
  return found;
}
