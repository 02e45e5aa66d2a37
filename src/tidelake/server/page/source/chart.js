// Draw: lines, areas, columns over time, points, bars, slices, cards. Windows that a table does not hold are hatched, on
// every time chart, because no line there does not mean zero. It does not ask: values and gaps are given.
import uPlot from "uplot";
import { classes, html, useLayoutEffect, useRef, useState } from "./core.js";
import { LEVEL_NAMES, brief, count, levelOf, line, number, plural, span, time } from "./format.js";
import { alongAxis, broken, byName, columnsOf, parted, stepOf } from "./series.js";
import { isDark } from "./state.js";

const COLOURS = 10;
const LEVEL_COLOURS = { bad: "--bad", warn: "--warn", note: "--series-1", "": "--series-0", dim: "--ink-4" };

// Levels have their own colours, where these tell all series apart.
function levelsOf(name, values) {
  const found = name && LEVEL_NAMES.has(name.toLowerCase()) ? values.map(levelOf) : [];
  return found.length && new Set(found).size === found.length ? found : undefined;
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const colourAt = (at) => css(`--series-${at % COLOURS}`);

// x in milliseconds; kind: line | area | bars | points. gaps: [{ start, end, isWhole, who }].
export function TimeChart({ data, kind = "line", stacked = false, height = 260, gaps = [], window, onZoom, colours, label, legend = true, unit = "" }) {
  const place = useRef(), plot = useRef(), [at, setAt] = useState(null), [hidden, setHidden] = useState(new Set());
  const dark = isDark.value;
  const ready = kind === "bars" ? data : broken(parted(data, gaps));
  const paints = ready.series.map((each, index) => css(LEVEL_COLOURS[colours?.[index]] ?? `--series-${index % COLOURS}`));
  useLayoutEffect(() => {
    const node = place.current;
    const scale = ready.isTime ? 1000 : 1;
    const x = ready.x.map((each) => each / scale);
    let seen = ready.series.map((each, index) => ({ ...each, index })).filter((each) => !hidden.has(each.name));
    let heights = stacked ? piled(seen, x.length) : seen.map((each) => each.values);
    if (stacked) [seen, heights] = [seen.reverse(), heights.reverse()]; // the tallest first, the others before it
    const step = (stepOf(data.x) ?? 1000) / scale;
    const options = {
      width: Math.max(200, node.clientWidth), height, ms: 1e-3, tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), "Etc/UTC"),
      padding: [8, 26, 0, 0], legend: { show: false },
      cursor: { drag: { x: Boolean(onZoom), y: false, setScale: false }, points: { size: 6 }, focus: { prox: 24 } },
      scales: { x: { time: ready.isTime, range: (_, low, high) => limits(low, high, window, scale, kind === "bars" ? step : 0) }, y: { range: (_, low, high) => (low >= 0 ? [0, (high || 1) * 1.08] : uPlot.rangeNum(low, high, 0.1, true)) } },
      axes: [axis(ready.isTime ? { space: 80, size: 26, values: clocks } : { size: 26 }, true), axis({ size: 52, values: (_, all) => all.map((each) => (each === null ? "" : brief(each))) })],
      series: [{}, ...seen.map((each) => serie(each.name, paints[each.index], kind, stacked, step, x.length))],
      hooks: {
        drawClear: [(u) => hatched(u, gaps.filter((each) => each.isWhole), scale)],
        draw: [(u) => {
          hatched(u, gaps.filter((each) => !each.isWhole), scale);
          if (began) performance.measure("chart drawn", { start: began }); // the benchmark of the page reads it
          began = 0;
        }],
        setSelect: [(u) => { if (u.select.width > 4 && onZoom) onZoom(u.posToVal(u.select.left, "x") * scale, u.posToVal(u.select.left + u.select.width, "x") * scale); u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false); }],
        setCursor: [(u) => setAt(u.cursor.idx ?? null)],
      },
    };
    let began = performance.now();
    const own = plot.current = new uPlot(options, [x, ...heights], node);
    node.dataset.points = String(x.length * seen.length);
    const watch = new ResizeObserver(() => own.setSize({ width: Math.max(200, node.clientWidth), height }));
    watch.observe(node);
    return () => { watch.disconnect(); own.destroy(); };
  }, [data, kind, stacked, height, gaps, window?.start, window?.end, dark, hidden]);
  const toggle = (name) => setHidden((was) => { const next = new Set(was); if (!next.delete(name)) next.add(name); return next; });
  const whole = gaps.filter((each) => each.isWhole).length, partial = gaps.length - whole;
  const told = `${label ?? "chart"}: ${plural(ready.series.length, "series", "series")}, ${plural(data.x.length, "window")}${whole ? `, ${plural(whole, "window")} not held` : ""}${partial ? `, ${plural(partial, "window")} held in part` : ""}`;
  return html`<figure class="chart">
    <div class="plot" ref=${place} role="img" aria-label=${told}></div>
    ${legend && html`<${Legend} data=${ready} at=${at} paints=${paints} hidden=${hidden} toggle=${toggle} unit=${unit} gaps=${gaps} />`}
  </figure>`;
}

function Legend({ data, at, paints, hidden, toggle, gaps, unit }) {
  const when = at === null || data.x[at] === undefined ? null : data.x[at];
  const missing = gaps.some((each) => each.isWhole), partly = gaps.filter((each) => !each.isWhole);
  const who = [...new Set(partly.flatMap((each) => each.who ?? []))];
  return html`<figcaption class="legend">
    ${when !== null && html`<span class="when">${data.isTime ? time(when, 0) : number(when)}</span>`}
    ${data.series.map((each, index) => html`<button key=${each.name} class=${classes("entry", hidden.has(each.name) && "off")} aria-pressed=${!hidden.has(each.name)} title=${line(each.name, 200)} onClick=${() => toggle(each.name)}>
      <i style=${{ background: paints[index] }}></i><span>${line(each.name, 48)}</span>${when !== null && each.values[at] !== null && each.values[at] !== undefined && html`<b>${number(each.values[at])}${unit}</b>`}</button>`)}
    ${data.left > 0 && html`<span class="dim">${count(data.left)} smaller series not shown</span>`}
    ${missing && html`<span class="entry"><i class="hatch"></i>not held</span>`}
    ${partly.length > 0 && html`<span class="entry" title=${who.join(", ")}><i class="hatch part"></i>held in part${who.length ? html`: without ${line(who.slice(0, 3).join(", "), 60)}${who.length > 3 ? ` and ${who.length - 3} more` : ""}` : ""}</span>`}
  </figcaption>`;
}

function limits(low, high, window, scale, step) {
  if (window) return [window.start / scale, window.end / scale];
  if (low === high) return [low - (step || 1), high + (step || 1)];
  return [low - step / 2, high + step / 2];
}

function axis(more, isTime) {
  const faint = css("--edge-2"), ink = css("--ink-3");
  const own = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: faint, width: 1 }, ticks: { stroke: faint, width: 1, size: 4 }, gap: 4, ...more };
  return isTime === undefined ? own : { ...own, grid: { show: false } };
}

function serie(label, paint, kind, stacked, step, points) {
  const base = { label, stroke: paint, width: 1.5, points: { show: false }, spanGaps: false };
  if (kind === "bars") return { ...base, width: 0, fill: paint, paths: uPlot.paths.bars({ size: [0.86, 48], align: 1, gap: 0 }) };
  if (kind === "points") return { ...base, width: 0, paths: () => null, points: { show: true, size: 4, fill: paint, stroke: paint } };
  if (kind === "area") return { ...base, fill: `${paint}${stacked ? "cc" : "2e"}` };
  return { ...base, points: { show: points < 2, size: 5 } };
}

function piled(series, length) {
  const base = new Float64Array(length);
  const isHeld = Array.from({ length }, (_, at) => series.some(({ values }) => values[at] !== null && values[at] !== undefined));
  return series.map(({ values }) => values.map((value, at) => (isHeld[at] ? (base[at] += value ?? 0) : null)));
}

// Times on an axis, in UTC: the day where it begins, else the clock, as exact as the steps are.
function clocks(_, all) {
  const step = all.length > 1 ? all[1] - all[0] : 1;
  return all.map((at, place) => {
    const text = new Date(at * 1000).toISOString(), isNewDay = place === 0 || text.slice(0, 10) !== new Date(all[place - 1] * 1000).toISOString().slice(0, 10);
    if (step >= 86_400) return text.slice(0, 10);
    const clock = step < 1 ? text.slice(11, 23) : step < 60 ? text.slice(11, 19) : text.slice(11, 16);
    return isNewDay ? `${text.slice(5, 10)} ${clock}` : clock;
  });
}

const HATCH = 7;

function hatched(u, gaps, scale) {
  const { ctx } = u, { left, top, width, height } = u.bbox;
  const ratio = uPlot.pxRatio;
  for (const gap of gaps) {
    const from = Math.max(left, u.valToPos(gap.start / scale, "x", true)), to = Math.min(left + width, u.valToPos(gap.end / scale, "x", true));
    if (to <= from) continue;
    const tall = gap.isWhole ? height : 9 * ratio;
    const y = top + height - tall;
    ctx.save();
    ctx.beginPath();
    ctx.rect(from, y, Math.max(2, to - from), tall);
    ctx.fillStyle = css("--gap-wash");
    ctx.fill();
    ctx.clip();
    ctx.strokeStyle = css(gap.isWhole ? "--gap" : "--warn");
    ctx.lineWidth = ratio;
    ctx.beginPath();
    for (let x = from - tall; x < to + tall; x += HATCH * ratio) { ctx.moveTo(x, y + tall); ctx.lineTo(x + tall, y); }
    ctx.stroke();
    if (gap.isWhole && to - from > 64 * ratio) {
      ctx.fillStyle = css("--ink-3");
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "center";
      ctx.fillText("not held", (from + to) / 2, top + 14 * ratio);
    }
    ctx.restore();
  }
}

function Bars({ answer, isUpright }) {
  const data = byName(answer, true);
  if (!data) return html`<${Nothing} />`;
  const paints = levelsOf(data.by, data.values)?.map((each) => `var(${LEVEL_COLOURS[each]})`) ?? data.values.map((_, at) => `var(--series-${at % COLOURS})`);
  const shown = data.rows.slice(0, isUpright ? 60 : 200);
  const most = Math.max(...shown.flatMap((row) => row.values.map((value) => Math.abs(value ?? 0))), 0) || 1;
  return html`<figure class=${classes("bars", isUpright && "upright")} role="table" aria-label="bars">
    ${shown.map((row, at) => html`<div class="bar" role="row" key=${at}>
      <span class="name" role="rowheader" title=${line(row.name, 300)}>${line(row.name, 80)}</span>
      <span class="track" role="cell">${row.values.map((value, place) => value !== null && html`<span key=${place} class="fill" style=${{ [isUpright ? "height" : "width"]: `${(Math.abs(value ?? 0) / most) * 100}%`, background: paints[place] }}><b>${number(value)}</b></span>`)}</span>
    </div>`)}
    ${data.values.length > 1 && html`<figcaption class="legend">${data.values.map((name, at) => html`<span class="entry" key=${name}><i style=${{ background: paints[at] }}></i>${line(name, 48)}</span>`)}</figcaption>`}
    ${data.rows.length > shown.length && html`<p class="dim">${count(data.rows.length - shown.length)} more are among the rows</p>`}
  </figure>`;
}

function Pie({ answer }) {
  const data = byName(answer);
  if (!data) return html`<${Nothing} />`;
  const rows = data.rows.filter((row) => row.values[0] > 0).sort((a, b) => b.values[0] - a.values[0]);
  const all = rows.reduce((sum, row) => sum + row.values[0], 0);
  const shown = rows.slice(0, 9);
  const rest = all - shown.reduce((sum, row) => sum + row.values[0], 0);
  if (rest > 0) shown.push({ name: `${rows.length - 9} others`, values: [rest] });
  let from = 0;
  const slices = shown.map((row, at) => {
    const share = row.values[0] / all, start = from;
    from += share;
    return { ...row, share, path: arc(start, from), paint: `var(--series-${at % COLOURS})` };
  });
  return html`<figure class="pie">
    <svg viewBox="-1 -1 2 2" role="img" aria-label=${slices.map((each) => `${each.name} ${(each.share * 100).toFixed(1)} %`).join(", ")}>${slices.map((each) => html`<path key=${each.name} d=${each.path} style=${{ fill: each.paint }}><title>${each.name}</title></path>`)}<text y="0.06">${brief(all)}</text></svg>
    <table><tbody>${slices.map((each) => html`<tr key=${each.name}><td><i style=${{ background: each.paint }}></i></td><th>${line(each.name, 60)}</th><td class="number">${number(each.values[0])}</td><td class="number dim">${(each.share * 100).toFixed(1)} %</td></tr>`)}</tbody></table>
  </figure>`;
}

function arc(from, to) {
  const wide = Math.min(to - from, 0.99999), point = (at, r) => `${Math.sin(at * 2 * Math.PI) * r} ${-Math.cos(at * 2 * Math.PI) * r}`;
  const large = wide > 0.5 ? 1 : 0;
  return `M${point(from, 0.95)}A0.95 0.95 0 ${large} 1 ${point(from + wide, 0.95)}L${point(from + wide, 0.58)}A0.58 0.58 0 ${large} 0 ${point(from, 0.58)}Z`;
}

function Cards({ answer }) {
  const { numbers } = columnsOf(answer);
  const shown = (numbers.length ? numbers : answer.columns).slice(0, 12);
  return html`<div class="cards">${shown.map((each) => html`<div class="card" key=${each.name}><b>${answer.rows ? (each.kind === "number" ? number(each.raw(0)) : line(String(each.raw(0)), 60)) : "–"}</b><span>${line(each.name, 60)}</span></div>`)}</div>`;
}

const Nothing = () => html`<p class="dim pad">A chart needs a column of numbers. The rows have what there is.</p>`;

export const KINDS = { timechart: "line", linechart: "line", areachart: "area", stackedareachart: "area", scatterchart: "points", columnchart: "columns", barchart: "bars", piechart: "pie", card: "card", table: "table", pivotchart: "table", anomalychart: "line", ladderchart: "bars", treemap: "bars" };

// The chart that a render asks for, or that the rows suggest.
export function Chart({ answer, render, gaps, window, onZoom, height }) {
  const kind = KINDS[render?.kind] ?? "line";
  if (kind === "card") return html`<${Cards} answer=${answer} />`;
  if (kind === "pie") return html`<${Pie} answer=${answer} />`;
  const { times } = columnsOf(answer);
  if (kind === "bars" || (kind === "columns" && !times.length)) return html`<${Bars} answer=${answer} isUpright=${kind === "columns"} />`;
  const data = alongAxis(answer);
  if (!data || !data.x.length) return byName(answer) ? html`<${Bars} answer=${answer} />` : html`<${Nothing} />`;
  return html`<${TimeChart} data=${data} kind=${kind === "columns" ? "bars" : kind} stacked=${render?.stacked || kind === "columns" || render?.kind === "stackedareachart"} gaps=${data.isTime ? gaps : []} window=${data.isTime ? window : null} onZoom=${data.isTime ? onZoom : null} height=${height} colours=${levelsOf(data.by.length === 1 ? data.by[0] : null, data.series.map((each) => each.name))} label=${render?.title ?? render?.kind ?? "chart"} />`;
}

export const isDrawable = (answer) => Boolean(answer && answer.rows && byNameOrAxis(answer));
const byNameOrAxis = (answer) => { const { numbers, times, others } = columnsOf(answer); return numbers.length && (times.length || others.length || numbers.length > 1); };
export const spanTold = (window) => span(window.end - window.start);
