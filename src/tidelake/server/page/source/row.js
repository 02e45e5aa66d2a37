// One row, opened: every field, dynamic ones as trees, and where to go from here: only or not a value, the lines around,
// the whole trace. It does not change the question: who picked something is told.
import { html, useEffect, useRef } from "./core.js";
import { column } from "./compose.js";
import { MINUTE, iso, line, text, time, visible } from "./format.js";
import { rowText } from "./grid.js";
import { OnlyNot } from "./side.js";
import { address, copy } from "./state.js";
import { Leaf, Tree, isTree } from "./tree.js";

const AROUND = [[10_000, "10 s"], [MINUTE, "1 m"], [10 * MINUTE, "10 m"]];
const TRACE = new Set(["trace_id", "traceid", "trace.id", "trace"]);

export function RowPanel({ answer, row, language, info, filter, close }) {
  const place = useRef();
  useEffect(() => { place.current.scrollTop = 0; }, [row]);
  const at = info?.time && answer.column(info.time)?.raw(row);
  const traced = answer.columns.find((each) => TRACE.has(each.name.toLowerCase()) && each.raw(row));
  const message = answer.columns.find((each) => /^(message|body|msg|log|line)$/i.test(each.name) && typeof each.raw(row) === "string");
  const actions = language === "promql" ? null : (path, value) => html`<${OnlyNot} path=${path} value=${value} onFilter=${filter} />`;
  return html`<aside class="row-panel" ref=${place} aria-label=${`row ${row + 1}`}>
    <header><b>Row ${row + 1}</b><div class="spring"></div><button class="quiet" onClick=${() => copy(rowText(answer, row))}>Copy</button><button class="icon" aria-label="close the row" onClick=${close}>×</button></header>
    ${message && html`<p class="message-text"><bdi>${visible(message.raw(row).slice(0, 2000))}</bdi></p>`}
    <div class="goes">
      ${at && info?.name && html`<span class="dim small">around it</span>${AROUND.map(([ms, name]) => html`<a key=${name} class="chip" href=${address("ask", { q: `${info.name}\n| order by ${column(info.time, "kql")} asc`, from: iso(at - ms), to: iso(at + ms + 1) })}>± ${name}</a>`)}`}
      ${traced && html`<a class="chip on" href=${address(`trace/${text(traced.raw(row))}`, { table: info?.name })}>whole trace</a>`}
    </div>
    <dl class="fields-of">${answer.columns.slice(0, 400).map((each) => html`<${Field} key=${each.name} column=${each} row=${row} actions=${actions} filter=${language === "promql" ? null : filter} />`)}</dl>
    ${answer.columns.length > 400 && html`<p class="dim pad">${answer.columns.length - 400} more columns: copy the row to see all</p>`}
  </aside>`;
}

function Field({ column: own, row, actions, filter }) {
  const value = own.kind === "dynamic" ? own.at(row) : own.raw(row);
  const isBranch = isTree(value);
  return html`<div class=${isBranch ? "branch" : ""}>
    <dt title=${own.type}>${line(own.name, 80)}</dt>
    <dd>${isBranch ? html`<${Tree} value=${value} path=${[own.name]} actions=${actions} />`
      : html`<${Leaf} value=${own.kind === "time" && value !== null ? `${time(value, value % 1 ? 6 : 3)}Z` : value} kind=${own.kind} />${filter && html`<${OnlyNot} path=${own.name} value=${value} kind=${own.kind} onFilter=${filter} />`}`}</dd>
  </div>`;
}
