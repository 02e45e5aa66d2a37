// Beside the editor: the tables there are, the fields of the one that is asked about, and saved questions. What is told
// of fields comes from statistics; no row is read for it. It does not ask questions: who picked something is told.
import { get } from "./api.js";
import { classes, html, useMemo, useState } from "./core.js";
import { count, line, text } from "./format.js";
import { Saved } from "./documents.js";
import { useAsked } from "./shell.js";
import { copy, tables } from "./state.js";

const MARKS = { timestamp: "◷", string: "a", long: "1", int: "1", real: "1", bool: "✓", dynamic: "{}", date: "◷", decimal: "1" };
export const mark = (type = "") => MARKS[type.split("(")[0]] ?? "·";

export function Side({ source, onTable, onFilter, onInsert }) {
  const [wanted, setWanted] = useState(""), [isOpen, setOpen] = useState(false);
  const shown = (tables.value ?? []).filter((each) => each.name.toLowerCase().includes(wanted.toLowerCase()));
  const groups = useMemo(() => Map.groupBy(shown, (each) => each.name.split(".")[0]), [tables.value, wanted]);
  return html`<aside class=${classes("side", isOpen && "open")} aria-label="tables and fields">
    <button class="side-open quiet" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Close" : `Tables and fields${source ? ` · ${source}` : ""}`}</button>
    <div class="side-body">
      <input class="find" type="search" placeholder="find a table" aria-label="find a table" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />
      <nav aria-label="tables">${[...groups].map(([space, some]) => html`<div key=${space} class="space"><h3>${space}</h3>
        ${some.slice(0, 200).map((each) => html`<button key=${each.name} class=${classes("table", each.name === source && "on")} aria-current=${each.name === source ? "true" : undefined} title=${each.name} onClick=${() => { setOpen(false); onTable(each.name); }}>
          <span class="name">${line(each.name.slice(space.length + 1), 60)}</span>${each.rows !== undefined && html`<span class="dim">${short(each.rows)}</span>`}</button>`)}</div>`)}
        ${tables.value && !shown.length && html`<p class="dim pad">No table ${wanted ? "is called that" : "yet"}.</p>`}
      </nav>
      ${source && html`<${Fields} table=${source} onFilter=${onFilter} onInsert=${onInsert} />`}
      <${Saved} />
    </div>
  </aside>`;
}

const short = (n) => (n >= 1e9 ? `${(n / 1e9).toFixed(1)}G` : n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : n >= 1e4 ? `${Math.round(n / 1e3)}k` : count(n));

function Fields({ table, onFilter, onInsert }) {
  const listed = tables.value?.find((each) => each.name === table);
  const { value, failure } = useAsked(() => get(`/v1/tables/${encodeURIComponent(table)}/fields`), [table, listed?.snapshot]);
  const [open, setOpen] = useState(null), [wanted, setWanted] = useState("");
  if (failure) return null;
  const all = value?.fields ?? [];
  const shown = all.filter((each) => each.name.toLowerCase().includes(wanted.toLowerCase()) || each.paths?.some((path) => path.path.includes(wanted)));
  return html`<section class="fields" aria-label=${`fields of ${table}`}>
    <h3>fields ${value && html`<span class="dim">${all.length}</span>`}</h3>
    ${all.length > 12 && html`<input class="find" type="search" placeholder="find a field" aria-label="find a field" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />`}
    ${shown.slice(0, 200).map((each) => html`<div key=${each.name} class="field">
      <button aria-expanded=${open === each.name} onClick=${() => setOpen(open === each.name ? null : each.name)}><i class="mark" aria-hidden="true">${mark(each.type)}</i><span class="name">${line(each.name, 60)}</span><span class="dim">${each.type}</span></button>
      ${open === each.name && html`<${Known} field=${each} rows=${value.rows} onFilter=${onFilter} onInsert=${onInsert} />`}
    </div>`)}
    ${shown.length > 200 && html`<p class="dim pad">${count(shown.length - 200)} more: find them by name</p>`}
  </section>`;
}

// What statistics know of a field.
export function Known({ field, rows, onFilter, onInsert }) {
  const share = rows ? 1 - (field.nulls ?? 0) / rows : null;
  const kind = field.type === "string" ? "text" : field.type === "timestamp" ? "time" : "number";
  return html`<div class="known">
    <dl>
      ${share !== null && field.nulls !== null && html`<div><dt>filled</dt><dd>${(share * 100).toFixed(share > 0.99 && share < 0.9999 ? 2 : 0)} %</dd></div>`}
      ${field.distinct !== null && field.distinct !== undefined && html`<div><dt>values</dt><dd>${count(field.distinct)}</dd></div>`}
      ${field.min !== null && field.min !== undefined && html`<div><dt>least</dt><dd title=${text(field.min)}>${line(text(field.min), 40)}</dd></div>`}
      ${field.max !== null && field.max !== undefined && html`<div><dt>most</dt><dd title=${text(field.max)}>${line(text(field.max), 40)}</dd></div>`}
      ${field.misfits > 0 && html`<div class="warn"><dt>misfits</dt><dd>${count(field.misfits)}</dd></div>`}
    </dl>
    ${field.examples?.length > 0 && field.type !== "dynamic" && html`<ul>${field.examples.slice(0, 12).map((each) => html`<li key=${text(each)}><span title=${text(each)}>${line(text(each), 60)}</span>${onFilter && html`<${OnlyNot} path=${field.name} value=${each} kind=${kind} onFilter=${onFilter} />`}</li>`)}</ul>`}
    ${field.paths?.length > 0 && html`<ul class="paths">${field.paths.slice(0, 60).map((each) => html`<li key=${each.path} title=${`${text(each.min)} … ${text(each.max)}`}><button class="link" onClick=${() => onInsert?.(`${field.name}.${each.path}`)}>${line(each.path, 60)}</button><span class="dim">${each.min !== null && each.min !== undefined ? line(text(each.min), 18) : ""}</span></li>`)}</ul>`}
  </div>`;
}

export function OnlyNot({ path, value, kind, onFilter }) {
  const said = Array.isArray(path) ? path.join(".") : path;
  return html`<span class="onlynot">
    <button title="only this value" aria-label=${`only ${said} ${line(text(value), 40)}`} onClick=${() => onFilter(path, value, false, kind)}>=</button>
    <button title="not this value" aria-label=${`not ${said} ${line(text(value), 40)}`} onClick=${() => onFilter(path, value, true, kind)}>≠</button>
    <button title="copy" aria-label=${`copy ${said}`} onClick=${() => copy(text(value))}>⧉</button>
  </span>`;
}
