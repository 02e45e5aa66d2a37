// A value of any shape as a tree that opens, a branch at a time. Every leaf is text. It does not change values.
import { html, useState } from "./core.js";
import { count, size, text, visible } from "./format.js";

const SHOWN = 2000, BRANCHES = 100;

export const isTree = (value) => value !== null && typeof value === "object" && !(value instanceof Date) && !(value instanceof Uint8Array);

const entries = (value) => (Array.isArray(value) ? value.map((each, at) => [String(at), each]) : value instanceof Map ? [...value] : ArrayBuffer.isView(value) ? [...value].map((each, at) => [String(at), each]) : Object.entries(value));

// onPick(path, value) is told what was chosen in the tree; actions draws what can be done with a leaf.
export function Tree({ value, path = [], open = 2, actions }) {
  const [most, setMost] = useState(BRANCHES);
  const parts = entries(value);
  return html`<ul class="tree" role="group">
    ${parts.slice(0, most).map(([name, each]) => html`<${Branch} key=${name} name=${name} value=${each} path=${[...path, name]} open=${open} actions=${actions} />`)}
    ${parts.length > most && html`<li><button class="link" onClick=${() => setMost(most + 1000)}>${count(parts.length - most)} more</button></li>`}
    ${!parts.length && html`<li class="dim">empty</li>`}
  </ul>`;
}

function Branch({ name, value, path, open, actions }) {
  const [isOpen, setOpen] = useState(open > 0);
  if (!isTree(value)) {
    return html`<li class="leaf"><span class="key">${visible(name)}</span><${Leaf} value=${value} />${actions?.(path, value)}</li>`;
  }
  const told = Array.isArray(value) ? `[${value.length}]` : `{${Object.keys(value).length}}`;
  return html`<li>
    <button class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span class="key">${visible(name)}</span> <span class="dim">${told}</span></button>
    ${isOpen && html`<${Tree} value=${value} path=${path} open=${open - 1} actions=${actions} />`}
  </li>`;
}

// One value, its kind by colour; long ones are cut until somebody wants all.
export function Leaf({ value, kind }) {
  const [isWhole, setWhole] = useState(false);
  if (value === null || value === undefined) return html`<span class="value null">null</span>`;
  const told = text(value);
  const cut = !isWhole && told.length > SHOWN;
  const type = kind ?? (typeof value === "number" || typeof value === "bigint" ? "number" : typeof value === "boolean" ? "bool" : "text");
  return html`<span class=${`value ${type}`}><bdi>${visible(cut ? told.slice(0, SHOWN) : told)}</bdi>${told === "" ? html`<span class="null">empty</span>` : ""}
    ${cut && html` <button class="link" onClick=${() => setWhole(true)}>… all ${size(told.length)}</button>`}</span>`;
}
