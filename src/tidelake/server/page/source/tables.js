// The tables of a lake, and one of them looked at from all sides: its fields, its history and drift, its extents over
// time, what it holds and what it misses. All of it is metadata; no row is read. It does not change tables.
import { get } from "./api.js";
import { classes, html, useEffect, useLayoutEffect, useRef, useState } from "./core.js";
import { ago, count, instant, iso, line, plural, size, span, text, time } from "./format.js";
import { questionFor } from "./ask.js";
import { css } from "./chart.js";
import { column } from "./compose.js";
import { Drift } from "./drift.js";
import { Busy, Empty, Wrong, useAsked } from "./shell.js";
import { mark } from "./side.js";
import { address, go, isDark, loadTables, route, tableInfo, tables } from "./state.js";

export function Tables() {
  useEffect(() => { loadTables(); }, []);
  const all = tables.value;
  if (all === null) return html`<${Busy} />`;
  if (!all.length) return html`<${Empty} title="The lake is empty"><p>Send rows to this server, or load a file:</p><pre>tidelake ingest obs.logs app.ndjson</pre></${Empty}>`;
  return html`<section class="pad scroll"><h2>Tables</h2>
    <table class="list"><thead><tr><th>table</th><th class="number">rows</th><th class="number">size</th><th class="number">extents</th><th class="number">columns</th><th>holds</th><th class="number">snapshot</th></tr></thead>
    <tbody>${all.map((each) => html`<tr key=${each.name}><td><a href=${address(`table/${each.name}`)}>${line(each.name, 80)}</a></td><td class="number">${count(each.rows)}</td><td class="number">${size(each.bytes)}</td><td class="number">${count(each.extents)}</td><td class="number">${count(each.columns)}</td>
      <td>${each.start ? html`${time(each.start, 0)} <span class="dim">– ${time(each.end, 0)} · ${span(each.end - each.start)}</span>` : html`<span class="dim">no times</span>`}</td><td class="number">${each.snapshot}</td></tr>`)}</tbody></table></section>`;
}

const SIDES = { fields: "Fields", history: "History", drift: "Drift", extents: "Extents", coverage: "Coverage" };

export function Table() {
  const { rest } = route.value, name = rest[0], side = rest[1] ?? "fields";
  const { value: info, failure } = useAsked(() => tableInfo(name), [name, tables.value]);
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (!info) return html`<${Busy} />`;
  const { settings = {} } = info;
  const told = [settings.bucket && `${settings.bucket} buckets`, settings.entity?.length && `by ${settings.entity.join(", ")}`, settings.key?.length && `key ${settings.key.join(", ")}`, settings.retention && `kept ${settings.retention}`, settings.scope === "user" && "one for each user", settings.format].filter(Boolean);
  return html`<section class="table-view pad scroll">
    <header class="headline"><h2>${line(name, 100)}</h2><div class="spring"></div><a class="button quiet" href=${address("tail", { table: name })}>Tail</a><a class="button primary" href=${address("ask", { q: questionFor(name, info) })}>Ask</a></header>
    <p class="dim">${plural(info.rows, "row")} · ${size(info.bytes)} in ${plural(info.extents, "extent")} · snapshot ${info.snapshot}${told.length ? ` · ${told.join(" · ")}` : ""}${info.start ? html`<br />holds ${time(info.start, 0)} – ${time(info.end, 0)} UTC, ${span(info.end - info.start)}` : ""}</p>
    <div class="tabs" role="tablist">${Object.entries(SIDES).map(([id, said]) => html`<a key=${id} role="tab" aria-selected=${side === id} class=${classes("tab", side === id && "on")} href=${address(`table/${name}/${id}`)}>${said}</a>`)}</div>
    ${side === "fields" && html`<${Fields} name=${name} info=${info} />`}
    ${side === "history" && html`<${History} name=${name} info=${info} />`}
    ${side === "drift" && html`<${Drift} name=${name} info=${info} />`}
    ${side === "extents" && html`<${Extents} name=${name} info=${info} />`}
    ${side === "coverage" && html`<${Coverage} name=${name} info=${info} />`}
  </section>`;
}

function Fields({ name, info }) {
  const { value, failure } = useAsked(() => get(`/v1/tables/${encodeURIComponent(name)}/fields`), [name, info.snapshot]);
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (!value) return html`<${Busy} />`;
  const { rows } = value;
  return html`<table class="list"><thead><tr><th>field</th><th>type</th><th class="number">filled</th><th class="number">values</th><th>least</th><th>most</th><th>for example</th></tr></thead><tbody>
    ${value.fields.slice(0, 500).map((each) => html`<${FieldRow} key=${each.name} field=${each} rows=${rows} />`)}
  </tbody></table>${value.fields.length > 500 && html`<p class="dim">${count(value.fields.length - 500)} more fields</p>`}`;
}

function FieldRow({ field, rows }) {
  const filled = rows && field.nulls !== null ? 1 - field.nulls / rows : null;
  return html`<tr><td><i class="mark" aria-hidden="true">${mark(field.type)}</i> ${line(field.name, 80)}${field.misfits > 0 && html` <span class="warn" title="values that do not fit the type, kept as they came">${plural(field.misfits, "misfit")}</span>`}</td><td class="dim">${field.type}</td>
      <td class="number">${filled === null ? "–" : html`<span class="meter" title=${`${count(field.nulls)} nulls`}><i style=${{ width: `${filled * 100}%` }}></i></span> ${Math.round(filled * 100)} %`}</td>
      <td class="number">${field.distinct === null || field.distinct === undefined ? html`<span class="dim">many</span>` : count(field.distinct)}</td><td class="clip" title=${text(field.min)}>${line(text(field.min), 40)}</td><td class="clip" title=${text(field.max)}>${line(text(field.max), 40)}</td>
      <td class="clip dim">${(field.examples ?? []).slice(0, 5).map((each) => line(text(each), 24)).join(", ")}</td></tr>
    ${(field.paths ?? []).slice(0, 200).map((each) => html`<tr class="path" key=${each.path}><td>${line(`${field.name}.${each.path}`, 80)}</td><td class="dim">path</td><td class="number">${each.rows === null || each.rows === undefined || !rows ? "" : `${Math.round((each.rows / rows) * 100)} %`}</td><td></td><td class="clip">${line(text(each.min), 40)}</td><td class="clip">${line(text(each.max), 40)}</td><td></td></tr>`)}`;
}

const HARM = new Set(["delete", "replace", "restore", "undo", "expire"]);

function History({ name, info }) {
  const { value, failure } = useAsked(() => get(`/v1/tables/${encodeURIComponent(name)}/history`, { limit: 200 }), [name, info.snapshot]);
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (!value) return html`<${Busy} />`;
  const all = value.snapshots, most = Math.max(...all.map((each) => each.rows), 1);
  return html`<${Line} snapshots=${all} most=${most} name=${name} info=${info} />
    <table class="list"><thead><tr><th class="number">snapshot</th><th>when</th><th>what</th><th class="number">rows</th><th class="number">change</th><th class="number">extents</th><th></th></tr></thead><tbody>
    ${all.map((each) => html`<tr key=${each.snapshot}><td class="number">${each.snapshot}</td><td title=${each.at}>${time(instant(each.at), 0)} <span class="dim">${ago(instant(each.at))}</span></td><td class=${HARM.has(each.operation) ? "warn" : ""}>${each.operation}</td><td class="number">${count(each.rows)}</td><td class=${classes("number", each.rows_change < 0 && "warn")}>${each.rows_change > 0 ? "+" : ""}${count(each.rows_change)}</td><td class="number">${count(each.extents)}</td>
      <td><a href=${address("ask", { q: questionFor(name, info), snapshot: each.snapshot === info.snapshot ? null : each.snapshot })}>look at it</a></td></tr>`)}</tbody></table>`;
}

// Snapshots on a line of time: a click travels there.
function Line({ snapshots, most, name, info }) {
  const times = snapshots.map((each) => instant(each.at)), first = Math.min(...times), last = Math.max(...times, first + 1);
  const x = (at) => 1 + ((at - first) / (last - first)) * 98;
  return html`<svg class="timeline" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${`${plural(snapshots.length, "snapshot")} from ${time(first, 0)} to ${time(last, 0)}`}>
    <polyline points=${[...snapshots].reverse().map((each) => `${x(instant(each.at))},${22 - (each.rows / most) * 20}`).join(" ")} />
    ${snapshots.map((each) => html`<rect key=${each.snapshot} class=${HARM.has(each.operation) ? "warn" : ""} x=${x(instant(each.at)) - 0.25} y=${22 - (each.rows / most) * 20 - 1} width="0.5" height=${2 + (each.rows / most) * 20} onClick=${() => go("ask", { q: questionFor(name, info), snapshot: String(each.snapshot) })}><title>snapshot ${each.snapshot}: ${each.operation}, ${count(each.rows)} rows</title></rect>`)}
  </svg>`;
}

const LANES = 24;

function Extents({ name, info }) {
  const { value, failure } = useAsked(() => get(`/v1/tables/${encodeURIComponent(name)}/extents`, { limit: 2000 }), [name, info.snapshot]);
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (!value) return html`<${Busy} />`;
  const all = value.extents.map((each) => ({ ...each, start: instant(each.start), end: instant(each.end) })).sort((a, b) => b.start - a.start);
  if (!all.length) return html`<${Empty} title="No extents yet">The rows are hot: the catalog holds them until they are flushed.</${Empty}>`;
  const lanes = laned(all.filter((each) => each.start !== null));
  const dense = Math.max(...all.map((each) => each.rows / Math.max(1, each.end - each.start)), 1e-9);
  return html`
    ${info.start && html`<svg class="lanes" viewBox=${`0 0 1000 ${Math.max(1, lanes.length) * 12}`} preserveAspectRatio="none" style=${{ height: `${Math.max(24, lanes.length * 14)}px` }} role="img" aria-label=${`${plural(all.length, "extent")} over time in ${lanes.length} lanes`}>
      ${lanes.map((lane, y) => lane.map((each) => html`<rect key=${each.key} x=${((each.start - info.start) / (info.end - info.start || 1)) * 1000} width=${Math.max(1.5, ((each.end - each.start) / (info.end - info.start || 1)) * 1000 - 1)} y=${y * 12 + 1} height="10" rx="2" style=${{ opacity: 0.35 + 0.65 * Math.min(1, each.rows / Math.max(1, each.end - each.start) / dense) }}><title>${plural(each.rows, "row")}, ${size(each.bytes)}, ${time(each.start, 0)} – ${time(each.end, 0)}</title></rect>`))}
    </svg><div class="ends dim small"><span>${time(info.start, 0)}</span><span>${plural(lanes.length, "lane")}: extents in one lane do not overlap in time</span><span>${time(info.end, 0)}</span></div>`}
    <table class="list"><thead><tr><th>from</th><th>to</th><th class="number">rows</th><th class="number">size</th><th class="number">blocks</th><th>format</th><th class="number">level</th><th class="number">since</th><th>object</th></tr></thead><tbody>
    ${all.slice(0, 300).map((each) => html`<tr key=${each.key}><td>${time(each.start, 0)}</td><td>${time(each.end, 0)}</td><td class="number">${count(each.rows)}</td><td class="number">${size(each.bytes)}</td><td class="number">${count(each.blocks)}</td><td>${each.format}</td><td class="number">${each.level}</td><td class="number">${each.added}</td><td class="clip dim" title=${each.key}>${line(each.key, 60)}</td></tr>`)}</tbody></table>
    ${(value.total ?? all.length) > 300 && html`<p class="dim">${count((value.total ?? all.length) - 300)} more extents</p>`}`;
}

function laned(extents) {
  const lanes = [];
  for (const each of [...extents].sort((a, b) => a.start - b.start)) {
    const free = lanes.find((lane) => lane.at(-1).end < each.start);
    if (free) free.push(each);
    else if (lanes.length < LANES) lanes.push([each]);
    else lanes.at(-1).push(each);
  }
  return lanes;
}

const WINDOWS = 160, CELL = 14;

function Coverage({ name, info }) {
  const entity = info.settings?.entity ?? [];
  const { value, failure } = useAsked(() => (info.settings?.bucket ? get(`/v1/coverage/${encodeURIComponent(name)}`, { resolution: WINDOWS, limit: 500, entities: 300 }) : null), [name, info.snapshot]);
  if (!info.settings?.bucket) return html`<${Empty} title="This table does not track coverage">A table that knows its buckets can say what is missing: it is created with <code>bucket="1m"</code> and the columns of its entities.</${Empty}>`;
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (!value) return html`<${Busy} />`;
  const who = (each) => entity.map((one) => text(each[one])).join(" · ") || "all";
  const look = (gap) => { const start = instant(gap.start), end = instant(gap.end), more = Math.max(end - start, 600_000); return address("ask", { q: `${name}\n${entity.map((one) => `| where ${column(one, "kql")} == ${typeof gap[one] === "string" ? JSON.stringify(gap[one]) : gap[one]}\n`).join("")}| summarize rows = count() by bin(${column(info.time, "kql")}, ${info.settings.bucket})\n| render timechart`, from: iso(start - more), to: iso(end + more) }); };
  return html`<p><b class="big">${(value.ratio * 100).toFixed(2)} %</b> <span class="dim">of ${info.settings.bucket} buckets are held · ${plural(value.entities_total, "entity", "entities")} · ${plural(value.gaps_total, "gap")}</span></p>
    ${value.matrix?.length > 0 && html`<${HeatMap} names=${value.entities.map(who)} matrix=${value.matrix} windows=${value.windows} />`}
    <h3>Gaps</h3>
    ${value.gaps.length ? html`<table class="list"><thead><tr>${entity.map((one) => html`<th key=${one}>${one}</th>`)}<th>from</th><th>to</th><th>length</th><th class="number">buckets</th><th></th></tr></thead><tbody>
      ${value.gaps.slice(0, 300).map((gap, at) => html`<tr key=${at}>${entity.map((one) => html`<td key=${one}>${line(text(gap[one]), 40)}</td>`)}<td>${time(instant(gap.start), 0)}</td><td>${time(instant(gap.end), 0)}</td><td>${span(instant(gap.end) - instant(gap.start))}</td><td class="number">${count(gap.buckets)}</td><td><a href=${look(gap)}>look around it</a></td></tr>`)}</tbody></table>
      ${value.gaps_total > 300 && html`<p class="dim">${count(value.gaps_total - 300)} more gaps</p>`}` : html`<p class="dim">Nothing is missing between the first bucket and the last.</p>`}`;
}

// How full each stretch of time is, for each entity.
function HeatMap({ names, matrix, windows }) {
  const place = useRef(), dark = isDark.value, [told, setTold] = useState(null);
  const wide = matrix[0].length;
  useLayoutEffect(() => {
    const canvas = place.current, paint = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = width * ratio;
    canvas.height = names.length * CELL * ratio;
    paint.scale(ratio, ratio);
    const full = css("--series-0"), none = css("--bad"), empty = css("--wash");
    matrix.forEach((row, y) => row.forEach((cell, x) => {
      const left = Math.round((x / wide) * width), size = Math.round(((x + 1) / wide) * width) - left;
      paint.globalAlpha = 1;
      paint.fillStyle = cell === null ? empty : none;
      paint.fillRect(left, y * CELL + 1, size, CELL - 2);
      if (cell) { paint.globalAlpha = cell === 1 ? 1 : 0.25 + cell * 0.45; paint.fillStyle = full; paint.clearRect(left, y * CELL + 1, size, CELL - 2); paint.fillRect(left, y * CELL + 1, size, CELL - 2); }
      if (cell !== null && cell < 1 && cell > 0) { paint.globalAlpha = 1 - cell; paint.fillStyle = none; paint.fillRect(left, y * CELL + 1, size, CELL - 2); }
    }));
  }, [matrix, dark]);
  const at = (event) => { const box = place.current.getBoundingClientRect(); const x = Math.floor(((event.clientX - box.left) / box.width) * wide), y = Math.floor((event.clientY - box.top) / CELL); const cell = matrix[y]?.[x]; setTold(cell === undefined ? null : `${names[y]} · ${time(instant(windows[x]), 0)} · ${cell === null ? "nothing is expected" : `${Math.round(cell * 100)} % held`}`); };
  const missing = matrix.flatMap((row, y) => (row.some((cell) => cell !== null && cell < 1) ? [names[y]] : []));
  return html`<div class="heat"><div class="heat-names">${names.map((each) => html`<span key=${each} style=${{ height: `${CELL}px`, lineHeight: `${CELL}px` }} title=${each}>${line(each, 40)}</span>`)}</div>
    <canvas ref=${place} style=${{ height: `${names.length * CELL}px` }} role="img" aria-label=${missing.length ? `missing somewhere: ${missing.slice(0, 20).join(", ")}` : "everything is held"} onPointerMove=${at} onPointerLeave=${() => setTold(null)}></canvas>
    <div></div><div class="ends dim small"><span>${time(instant(windows[0]), 0)}</span><span class="heat-told">${told ?? ""}</span><span>${time(instant(windows.at(-1)), 0)}</span></div></div>`;
}
