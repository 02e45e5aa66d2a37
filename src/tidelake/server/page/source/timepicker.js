// Pick a time: by name, by typing, or on a strip that shows what the table holds. It does not ask the question again:
// the address changes, and who looks at it asks.
import { get } from "./api.js";
import { classes, html, useEffect, useRef, useState } from "./core.js";
import { instant, iso, span, time } from "./format.js";
import { adjust, range, tableInfo } from "./state.js";
import { useAsked } from "./shell.js";

const NAMED = [["5m", "5 minutes"], ["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
const BARS = 96;

export function told(value) {
  if (!value) return "all that is held";
  if (value.told) return `last ${NAMED.find(([id]) => id === value.told)?.[1] ?? value.told}`;
  const same = iso(value.start).slice(0, 10) === iso(value.end).slice(0, 10);
  return `${time(value.start, 0)} – ${same ? time(value.end, 0).slice(11) : time(value.end, 0)}`;
}

export function TimePicker({ table, open, setOpen }) {
  const place = useRef();
  useEffect(() => {
    if (!open) return undefined;
    const away = (event) => !place.current.contains(event.target) && setOpen(false);
    addEventListener("pointerdown", away);
    return () => removeEventListener("pointerdown", away);
  }, [open]);
  return html`<div class="picker" ref=${place} onKeyDown=${(event) => event.key === "Escape" && open && (event.stopPropagation(), setOpen(false))}>
    <button class="quiet time" aria-haspopup="dialog" aria-expanded=${open} onClick=${() => setOpen(!open)}><span aria-hidden="true">◷ </span>${told(range.value)}<span class="dim"> UTC</span></button>
    ${open && html`<${Choices} table=${table} close=${() => setOpen(false)} />`}
  </div>`;
}

function Choices({ table, close }) {
  const value = range.value;
  const [from, setFrom] = useState(value ? time(value.start, 0) : ""), [to, setTo] = useState(value ? time(value.end, 0) : "");
  const [wrong, setWrong] = useState(null), first = useRef();
  useEffect(() => first.current?.focus(), []);
  const pick = (params) => { adjust({ from: null, to: null, row: null, ...params }); close(); };
  const submit = (event) => {
    event.preventDefault();
    const start = instant(from.trim()), end = to.trim() ? instant(to.trim()) : Date.now();
    if (start === null || end === null) setWrong("a time is 2026-03-14 12:40:00, in UTC");
    else if (start >= end) setWrong("the start is not before the end");
    else pick({ from: iso(start), to: iso(end) });
  };
  return html`<div class="choices" role="dialog" aria-label="time range">
    ${table && html`<${Held} table=${table} pick=${pick} />`}
    <div class="named">
      <button ref=${first} class=${classes("quiet", !value && "on")} onClick=${() => pick({})}>all that is held</button>
      ${NAMED.map(([id, name]) => html`<button key=${id} class=${classes("quiet", value?.told === id && "on")} onClick=${() => pick({ from: id })}>last ${name}</button>`)}
    </div>
    <form onSubmit=${submit}>
      <label>from <input value=${from} onInput=${(event) => setFrom(event.target.value)} placeholder="2026-03-14 12:00:00" spellcheck="false" /></label>
      <label>to <input value=${to} onInput=${(event) => setTo(event.target.value)} placeholder="now" spellcheck="false" /></label>
      <button class="primary">Apply</button>
    </form>
    ${wrong && html`<p class="bad" role="alert">${wrong}</p>`}
  </div>`;
}

// Rows over time, by the extents that hold them: from metadata, nothing is read.
export function Held({ table, pick }) {
  const { value } = useAsked(async () => {
    const [info, told] = await Promise.all([tableInfo(table), get(`/v1/tables/${encodeURIComponent(table)}/extents`, { limit: 10000 })]);
    return { info, bars: spread(told.extents, info) };
  }, [table]);
  const [drag, setDrag] = useState(null), strip = useRef();
  if (!value?.info.start || !(value.info.end > value.info.start)) return html`<p class="dim">${value ? "The table holds no times yet." : " "}</p>`;
  const { info, bars } = value, size = info.end - info.start, most = Math.max(...bars) || 1;
  const at = (event) => { const box = strip.current.getBoundingClientRect(); return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)); };
  const selected = drag ?? (range.value && { from: Math.max(0, (range.value.start - info.start) / size), to: Math.min(1, (range.value.end - info.start) / size) });
  return html`<div class="held">
    <div class="dim small">What <b>${table}</b> holds · ${span(size)} · drag to choose</div>
    <svg ref=${strip} viewBox=${`0 0 ${BARS} 32`} preserveAspectRatio="none" role="img" aria-label=${`${table} holds ${time(info.start, 0)} to ${time(info.end, 0)}`}
      onPointerDown=${(event) => { strip.current.setPointerCapture(event.pointerId); setDrag({ from: at(event), to: at(event) }); }}
      onPointerMove=${(event) => drag && setDrag({ ...drag, to: at(event) })}
      onPointerUp=${() => { if (drag && Math.abs(drag.to - drag.from) > 0.005) { const [a, b] = [drag.from, drag.to].sort((x, y) => x - y); pick({ from: iso(info.start + a * size), to: iso(info.start + b * size) }); } setDrag(null); }}>
      ${bars.map((value, place) => value > 0 && html`<rect key=${place} x=${place + 0.1} width="0.8" y=${31 - (value / most) * 30} height=${(value / most) * 30 + 1} />`)}
      ${selected && html`<rect class="chosen" x=${Math.min(selected.from, selected.to) * BARS} width=${Math.abs(selected.to - selected.from) * BARS} y="0" height="32" />`}
    </svg>
    <div class="ends dim small"><span>${time(info.start, 0)}</span><span>${time(info.end, 0)}</span></div>
  </div>`;
}

export function spread(extents, info, bars = BARS) {
  const found = new Array(bars).fill(0), size = info.end - info.start || 1;
  for (const extent of extents) {
    const start = instant(extent.start), end = instant(extent.end);
    if (start === null || end === null) continue;
    const from = Math.max(0, Math.floor(((start - info.start) / size) * bars)), to = Math.min(bars - 1, Math.floor(((end - info.start) / size) * bars));
    for (let at = from; at <= to; at += 1) found[at] += extent.rows / (to - from + 1);
  }
  return found;
}
