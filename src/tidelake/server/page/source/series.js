// Rows to what a chart draws: an axis, and values along it for each series. Pure. It does not draw: see chart.js.
const MOST_SERIES = 40, MOST_NAMES = 2000, MOST_PARTS = 6;

const numeric = (value) => (value === null || value === undefined || value === "" ? null : Number(value));

export function columnsOf(answer) {
  const times = answer.columns.filter((each) => each.kind === "time");
  const numbers = answer.columns.filter((each) => each.kind === "number");
  const others = answer.columns.filter((each) => each.kind !== "time" && each.kind !== "number");
  return { times, numbers, others };
}

// Values along time, or along a number: { x: [...], series: [{ name, values }], isTime, left: series not shown }.
export function alongAxis(answer) {
  const { times, numbers, others } = columnsOf(answer);
  const axis = times[0] ?? numbers[0];
  const values = numbers.filter((each) => each !== axis);
  if (!axis || !values.length) return null;
  const isTime = axis === times[0];
  const byName = new Map();
  const places = new Map();
  for (let row = 0; row < answer.rows; row += 1) {
    const x = numeric(axis.raw(row));
    if (x === null || Number.isNaN(x)) continue;
    if (!places.has(x)) places.set(x, places.size);
    const label = others.map((each) => told(each.raw(row))).join(" · ");
    for (const value of values) {
      const name = label ? (values.length > 1 ? `${label} · ${value.name}` : label) : value.name;
      let held = byName.get(name);
      if (!held) byName.set(name, (held = new Map()));
      const y = numeric(value.raw(row));
      if (y !== null && Number.isFinite(y)) held.set(x, y);
    }
  }
  const x = [...places.keys()].sort((a, b) => a - b);
  const all = [...byName].map(([name, held]) => ({ name, held, weight: sum(held.values()) })).sort((a, b) => b.weight - a.weight);
  const kept = all.slice(0, MOST_SERIES);
  return { x, isTime, left: all.length - kept.length, by: others.map((each) => each.name), series: kept.map(({ name, held }) => ({ name, values: x.map((at) => held.get(at)) })) }; // undefined: a line goes on over what one series lacks
}

function sum(values) {
  let all = 0;
  for (const value of values) all += Math.abs(value);
  return all;
}

const told = (value) => (value === null || value === undefined ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));

// The distance between windows, by the smallest step that is seen.
export function stepOf(x) {
  let least = Infinity;
  for (let at = 1; at < x.length; at += 1) least = Math.min(least, x[at] - x[at - 1]);
  return Number.isFinite(least) ? least : null;
}

// A line does not go on over windows that are not there: a place without values is put into each such jump.
export function broken(data, { least = 1.5 } = {}) {
  const step = stepOf(data.x);
  if (!data.isTime || !step || data.x.length < 3) return data;
  const x = [], from = [];
  data.x.forEach((at, place) => {
    if (place && at - data.x[place - 1] > step * least) { x.push(data.x[place - 1] + step); from.push(-1); }
    x.push(at);
    from.push(place);
  });
  return { ...data, x, series: data.series.map((each) => ({ ...each, values: from.map((place) => (place < 0 ? null : each.values[place])) })) };
}

// Nor does the line of an entity go on over windows that the table does not hold of it.
export function parted(data, gaps) {
  const some = gaps.filter((each) => !each.isWhole && each.who?.length);
  if (!some.length || !data.by.length) return data;
  const series = data.series.map((each) => {
    const own = some.filter(({ who }) => who.some((name) => each.name === name || each.name.startsWith(`${name} · `)));
    return own.length ? { ...each, values: each.values.map((value, at) => (value === undefined && own.some(({ start, end }) => data.x[at] >= start && data.x[at] < end) ? null : value)) } : each;
  });
  return { ...data, series };
}

// Values by name, for bars and slices. Of two names the second tells the bars of the first apart, if it has few values.
export function byName(answer, isParted = false) {
  const { numbers, others, times } = columnsOf(answer);
  const labels = others.length ? others : times;
  const values = labels.length ? numbers : numbers.slice(1);
  const names = labels.length ? labels : numbers.slice(0, 1);
  if (!values.length) return null;
  const said = (each, row) => (each.kind === "time" ? new Date(each.raw(row)).toISOString().slice(0, 19).replace("T", " ") : told(each.raw(row)));
  const shown = Math.min(answer.rows, MOST_NAMES);
  if (isParted && others.length === 2 && values.length === 1) {
    const parts = new Map(), rows = new Map();
    for (let row = 0; row < shown && parts.size <= MOST_PARTS; row += 1) {
      const [name, part] = others.map((each) => said(each, row));
      if (!parts.has(part)) parts.set(part, parts.size);
      if (!rows.has(name)) rows.set(name, { name, values: [] });
      rows.get(name).values[parts.get(part)] = numeric(values[0].raw(row));
    }
    if (parts.size <= MOST_PARTS) return { rows: [...rows.values()].map(({ name, values: own }) => ({ name, values: Array.from(parts, (_, at) => own[at] ?? null) })), values: [...parts.keys()], by: others[1].name };
  }
  const rows = Array.from({ length: shown }, (_, row) => ({ name: names.map((each) => said(each, row)).join(" · ") || `${row + 1}`, values: values.map((each) => numeric(each.raw(row))) }));
  return { rows, values: values.map((each) => each.name) };
}

// From the first time of a column to the last.
export function edges(times, rows) {
  if (!times || !rows) return null;
  let low = Infinity, high = -Infinity;
  for (let row = 0; row < rows; row += 1) {
    const at = times.raw(row);
    if (at === null) continue;
    if (at < low) low = at;
    if (at > high) high = at;
  }
  return low < high ? { start: low, end: high } : null;
}
