// Rows, whoever gave them: columns with names and kinds, and a value at a place. Values of Arrow are read where they
// lie, one at a time, so a million rows cost no more than their bytes. It does not ask for rows: see api.js.
import { tableFromIPC, Type } from "@uwdata/flechette";

// kind: time | number | text | bool | dynamic | other
export class Answer {
  constructor(columns, rows, bytes = 0) {
    this.columns = columns; // [{ name, kind, type, at(row) }]
    this.rows = rows;
    this.bytes = bytes;
  }

  column(name) {
    return this.columns.find((each) => each.name === name);
  }

  row(at) {
    return Object.fromEntries(this.columns.map((each) => [each.name, each.at(at)]));
  }
}

const KINDS = new Map([
  [Type.Timestamp, "time"], [Type.Date, "time"], [Type.Int, "number"], [Type.Float, "number"], [Type.Decimal, "number"],
  [Type.Bool, "bool"], [Type.Utf8, "text"], [Type.LargeUtf8, "text"], [Type.Utf8View, "text"],
  [Type.Struct, "dynamic"], [Type.List, "dynamic"], [Type.LargeList, "dynamic"], [Type.FixedSizeList, "dynamic"], [Type.Map, "dynamic"],
]);

export function ofArrow(bytes) {
  if (!bytes.length) return new Answer([], 0);
  const table = tableFromIPC(bytes, { useBigInt: true, useDate: false, useDecimalInt: false });
  const columns = table.schema.fields.map((field, at) => ofField(field, table.getChildAt(at)));
  return new Answer(columns, table.numRows, bytes.length);
}

function ofField(field, values) {
  const isJson = ["json", "dynamic"].includes(field.metadata?.get("tidelake.type"));
  const type = field.type.typeId === Type.Dictionary ? field.type.dictionary : field.type;
  const kind = isJson ? "dynamic" : KINDS.get(type.typeId) ?? "other";
  const read = (row) => values.at(row);
  return { name: field.name, kind, type: isJson ? "dynamic" : named(type, kind), at: isJson ? (row) => parsed(read(row)) : read, raw: read };
}

const named = (type, kind) => ({ time: type.typeId === Type.Date ? "date" : "timestamp", number: type.typeId === Type.Float ? "real" : type.typeId === Type.Decimal ? "decimal" : type.bitWidth > 32 ? "long" : "int", text: "string", bool: "bool", dynamic: "dynamic" })[kind] ?? "binary";

// JSON text as what it says; a text that is none stays text.
function parsed(text) {
  if (typeof text !== "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// Plain objects, as JSON gives them.
export function ofRows(rows, kinds = {}) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const columns = names.map((name) => {
    const kind = kinds[name] ?? kindOf(rows.find((row) => row[name] !== null && row[name] !== undefined)?.[name]);
    const at = (row) => rows[row][name] ?? null;
    return { name, kind, type: { time: "timestamp", number: "real", text: "string" }[kind] ?? kind, at, raw: at };
  });
  return new Answer(columns, rows.length);
}

function kindOf(value) {
  switch (typeof value) {
    case "number": case "bigint": return "number";
    case "boolean": return "bool";
    case "object": return "dynamic";
    default: return "text";
  }
}

// A matrix or a vector of Prometheus: a row for each sample, its labels as columns.
export function ofProm(data) {
  const rows = [];
  for (const series of data.result ?? []) {
    const samples = series.values ?? (series.value ? [series.value] : []);
    for (const [at, value] of samples) rows.push({ ts: at * 1000, ...series.metric, value: Number(value) });
  }
  if (data.resultType === "scalar" || data.resultType === "string") rows.push({ ts: data.result[0] * 1000, value: Number(data.result[1]) });
  return ofRows(rows, { ts: "time", value: "number" });
}
