// Rows in a grid that holds only what is seen: a million rows and two thousand columns cost as much as forty and ten.
// The keyboard moves a cell; who opens a row, sorts or filters is told. It does not hold rows: see answer.js.
import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./core.js";
import { copy } from "./state.js";
import { LEVEL_NAMES, count, levelOf, line, number, text, time } from "./format.js";

const ROW = 24, HEAD = 28, TALLEST = 12_000_000, SAMPLE = 60, CHARACTER = 7.3;
const NARROW = 56, WIDE = 560, LAST_WIDE = 1400;

export function Grid({ answer, open, onOpen, onFilter, onSort, sort, label = "rows", handle }) {
  const place = useRef(), [view, setView] = useState({ top: 0, left: 0, height: 400, width: 900 });
  const [cell, setCell] = useState({ row: 0, column: 0 });
  const widths = useMemo(() => measured(answer), [answer]);
  const offsets = useMemo(() => summed(widths), [widths]);
  const order = useMemo(() => sorted(answer, sort), [answer, sort]);
  const fullHeight = answer.rows * ROW;
  const height = Math.min(fullHeight, TALLEST);
  const room = Math.max(ROW, view.height - HEAD);
  const visibleRows = Math.ceil(room / ROW) + 1;
  const isScaled = fullHeight > TALLEST;
  const first = Math.max(0, Math.min(answer.rows - 1, isScaled
    ? Math.round((view.top / Math.max(1, height - room)) * (answer.rows - visibleRows + 1))
    : Math.floor(view.top / ROW)));
  const rows = [];
  for (let at = first; at < Math.min(answer.rows, first + visibleRows); at += 1) rows.push(at);
  const columns = seen(offsets, widths, view.left, view.width);

  useLayoutEffect(() => {
    const node = place.current;
    const look = () => setView((was) => ({ ...was, height: node.clientHeight, width: node.clientWidth }));
    const watch = new ResizeObserver(look);
    watch.observe(node);
    look();
    return () => watch.disconnect();
  }, []);
  useEffect(() => { place.current.scrollTop = 0; setCell({ row: 0, column: 0 }); }, [answer]);

  const onScroll = () => {
    const node = place.current;
    setView((was) => ({ ...was, top: node.scrollTop, left: node.scrollLeft }));
  };
  const show = (row, column) => {
    const node = place.current;
    const to = isScaled ? (row / Math.max(1, answer.rows - visibleRows + 1)) * (height - room) : row * ROW;
    if (row < first || row >= first + visibleRows - 2) node.scrollTop = isScaled ? to : row < first ? to : to - room + ROW * 2;
    if (offsets[column] < node.scrollLeft) node.scrollLeft = offsets[column];
    else if (offsets[column] + widths[column] > node.scrollLeft + node.clientWidth) node.scrollLeft = Math.min(offsets[column], offsets[column] + widths[column] - node.clientWidth);
  };
  const move = (row, column) => {
    const to = { row: Math.max(0, Math.min(answer.rows - 1, row)), column: Math.max(0, Math.min(answer.columns.length - 1, column)) };
    setCell(to);
    show(to.row, to.column);
    if (open !== null && open !== undefined) onOpen?.(order(to.row));
  };
  if (handle) handle.current = { focus: () => place.current.focus(), move };
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, column } = cell, page = visibleRows - 3, name = answer.columns[column]?.name;
    const value = () => answer.columns[column].at(order(row));
    const acts = {
      ArrowDown: () => move(row + 1, column), ArrowUp: () => move(row - 1, column), ArrowRight: () => move(row, column + 1), ArrowLeft: () => move(row, column - 1),
      PageDown: () => move(row + page, column), PageUp: () => move(row - page, column), Home: () => move(0, column), End: () => move(answer.rows - 1, column),
      Enter: () => onOpen?.(order(row)), " ": () => onOpen?.(order(row)), "=": () => onFilter?.(name, value(), false), "-": () => onFilter?.(name, value(), true),
      s: () => onSort?.(name), c: () => copy(text(value())), C: () => copy(rowText(answer, order(row))),
    };
    if (acts[event.key] && answer.rows) { event.preventDefault(); acts[event.key](); }
  };
  const level = answer.columns.find((each) => LEVEL_NAMES.has(each.name.toLowerCase()));
  const total = offsets.at(-1) ?? 0;
  return html`<div class="grid" ref=${place} role="grid" tabindex="0" aria-label=${label} aria-rowcount=${answer.rows + 1} aria-colcount=${answer.columns.length}
      aria-activedescendant=${answer.rows ? `cell-${cell.row}-${cell.column}` : undefined} onScroll=${onScroll} onKeyDown=${onKey}>
    <div class="grid-head" role="row" aria-rowindex="1" style=${{ width: `${total}px` }}>
      ${columns.map((at) => html`<div role="columnheader" key=${at} class=${classes("th", answer.columns[at].kind)} aria-colindex=${at + 1} title=${`${answer.columns[at].name}: ${answer.columns[at].type}`}
          aria-sort=${sort?.name === answer.columns[at].name ? (sort.down ? "descending" : "ascending") : "none"} style=${{ left: `${offsets[at]}px`, width: `${widths[at]}px` }}
          onClick=${() => onSort?.(answer.columns[at].name)}>
        <span class="name">${line(answer.columns[at].name, 80)}</span>${sort?.name === answer.columns[at].name && html`<span aria-hidden="true"> ${sort.down ? "↓" : "↑"}</span>`}
      </div>`)}
    </div>
    <div class="grid-body" style=${{ height: `${height}px`, width: `${total}px` }}>
      <div class="grid-rows" style=${{ transform: `translateY(${isScaled ? view.top : first * ROW}px)` }}>
        ${rows.map((at) => html`<${Row} key=${at} at=${at} from=${order(at)} columns=${columns} answer=${answer} offsets=${offsets} widths=${widths} level=${level}
          isOpen=${open === order(at)} active=${cell.row === at ? cell.column : -1} onPick=${(column) => { setCell({ row: at, column }); onOpen?.(order(at)); }} />`)}
      </div>
    </div>
  </div>`;
}

function Row({ at, from, columns, answer, offsets, widths, level, isOpen, active, onPick }) {
  return html`<div class=${classes("tr", isOpen && "open", level && levelOf(level.at(from)))} role="row" aria-rowindex=${at + 2} aria-selected=${isOpen}>
    ${columns.map((column) => {
      const each = answer.columns[column];
      return html`<div role="gridcell" id=${`cell-${at}-${column}`} key=${column} aria-colindex=${column + 1} class=${classes("td", each.kind, column === active && "active", each === level && "level")}
        style=${{ left: `${offsets[column]}px`, width: `${widths[column]}px` }} onClick=${() => onPick(column)}>${shown(each, from)}</div>`;
    })}
  </div>`;
}

export function shown(column, row) {
  const value = column.raw(row);
  if (value === null || value === undefined) return html`<span class="null">null</span>`;
  if (column.kind === "time") return time(value, value % 1 ? 6 : 3);
  if (column.kind === "number") return typeof value === "string" ? value : number(value);
  return line(text(value));
}

// Only the columns that are in sight, by halving.
function seen(offsets, widths, left, width) {
  let low = 0, high = widths.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle] + widths[middle] < left) low = middle + 1; else high = middle;
  }
  const found = [];
  for (let at = low; at < widths.length && offsets[at] < left + width; at += 1) found.push(at);
  return found;
}

function measured(answer) {
  const step = Math.max(1, Math.floor(answer.rows / SAMPLE));
  const few = answer.columns.length <= 60;
  return answer.columns.map((column, place) => {
    let most = column.name.length + 2;
    if (column.kind === "time") most = Math.max(most, 23);
    else for (let row = 0; few && row < answer.rows && row < SAMPLE * step; row += step) {
      const value = column.raw(row);
      if (value !== null && value !== undefined) most = Math.max(most, column.kind === "number" && typeof value !== "string" ? number(value).length : Math.min(400, text(value).length));
    }
    const widest = place === answer.columns.length - 1 || /^(message|body|msg|text|log|line)$/i.test(column.name) ? LAST_WIDE : WIDE;
    return Math.round(Math.max(NARROW, Math.min(few ? widest : 160, most * CHARACTER + 20)));
  });
}

function summed(widths) {
  const offsets = [0];
  for (const width of widths) offsets.push(offsets.at(-1) + width);
  return offsets;
}

// A function from a row's place in the grid to its place in the answer.
function sorted(answer, sort) {
  const column = sort && answer.column(sort.name);
  if (!column) return (row) => row;
  const keys = new Array(answer.rows);
  for (let row = 0; row < answer.rows; row += 1) keys[row] = column.raw(row);
  const order = Uint32Array.from({ length: answer.rows }, (_, at) => at);
  const sign = sort.down ? -1 : 1;
  order.sort((a, b) => {
    const x = keys[a], y = keys[b];
    if (x === y) return a - b;
    if (x === null || x === undefined) return 1; // what is missing comes last, both ways
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * sign;
  });
  return (row) => order[row];
}

// A row as JSON, to be copied.
export const rowText = (answer, row) => JSON.stringify(answer.row(row), (_, value) => (typeof value === "bigint" ? value.toString() : value), 2);

export const rowsTold = (answer) => `${count(answer.rows)} ${answer.rows === 1 ? "row" : "rows"}`;
