// Dashboards: several questions side by side, kept as one document of the lake. A panel is asked again only when a commit
// was seen in its table: when nothing was committed, nothing is asked. It does not keep answers.
import { LANGUAGES, Running, gapsOf, tableOf } from "./asking.js";
import { session } from "./api.js";
import { Chart } from "./chart.js";
import { classes, html, useEffect, useMemo, useRef, useState } from "./core.js";
import { listed, nameFor, read, remove, revisions, write } from "./documents.js";
import { Editor } from "./editor.js";
import { ago, instant, line } from "./format.js";
import { Grid } from "./grid.js";
import { Busy, Empty, Wrong, useAsked } from "./shell.js";
import { edges } from "./series.js";
import { TimePicker } from "./timepicker.js";
import { address, adjust, go, loadTables, range, route, say, tableInfo, tables } from "./state.js";

const NONE = [];
const KIND = "dashboard", EVERY_MS = 3000;
const KINDS = ["timechart", "areachart", "columnchart", "barchart", "scatterchart", "piechart", "card", "table"];

export function Boards() {
  const { value, failure, again } = useAsked(() => listed(KIND), []);
  const mayWrite = session.value?.roles.includes("write");
  const make = async () => {
    const name = await nameFor("New dashboard");
    if (!name) return;
    try {
      await write(KIND, name, { panels: [] }, 0);
      go(`board/${name}`, { edit: "1" });
    } catch (error) {
      say(error.message, "bad");
    }
  };
  if (failure) return html`<${Wrong} failure=${failure} onRetry=${again} />`;
  if (!value) return html`<${Busy} />`;
  return html`<section class="pad scroll"><header class="headline"><h2>Dashboards</h2><div class="spring"></div>${mayWrite && html`<button class="primary" onClick=${make}>New dashboard</button>`}</header>
    ${value.length ? html`<table class="list"><thead><tr><th>dashboard</th><th class="number">panels</th><th class="number">revision</th><th>saved</th><th>by</th></tr></thead><tbody>${value.map((each) => html`<tr key=${each.name}><td><a href=${address(`board/${each.name}`)}>${line(each.name, 100)}</a></td><td class="number">${each.body.panels?.length ?? 0}</td><td class="number">${each.revision}</td><td>${ago(instant(each.at))}</td><td>${line(each.by ?? "", 40)}</td></tr>`)}</tbody></table>`
      : html`<${Empty} title="No dashboards yet">A dashboard is a few questions that are looked at together. It is kept in the lake, with all its revisions.</${Empty}>`}
  </section>`;
}

export function Board() {
  const { rest, params } = route.value, name = rest[0];
  const loaded = useAsked(async () => (params.revision ? { ...(await revisions(KIND, name)).find((each) => String(each.revision) === params.revision), name } : read(KIND, name)), [name, params.revision]);
  const [panels, setPanels] = useState(null), [edited, setEdited] = useState(null), [isPicking, setPicking] = useState(false);
  const isEditing = params.edit === "1" && session.value?.roles.includes("write");
  useEffect(() => setPanels(loaded.value?.body?.panels ?? null), [loaded.value]);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && loadTables(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (loaded.failure) return html`<${Wrong} failure=${loaded.failure} />`;
  if (!loaded.value || !panels) return html`<${Busy} />`;
  const save = async () => {
    try {
      await write(KIND, name, { ...loaded.value.body, panels }, loaded.value.revision);
      say("saved");
      adjust({ edit: null });
      loaded.again();
    } catch (error) {
      say(error.message, "bad");
    }
  };
  const put = (at, panel) => setPanels(at < panels.length ? panels.map((each, place) => (place === at ? panel : each)) : [...panels, panel]);
  const move = (at, by) => setPanels(panels.toSpliced(at, 1).toSpliced(Math.max(0, at + by), 0, panels[at]));
  const drop = async () => { await remove(KIND, name, loaded.value.revision).catch((error) => say(error.message, "bad")); go("boards"); };
  const table = tableOf(panels[0]?.text ?? "", panels[0]?.language ?? "kql");
  return html`<section class="board pad scroll">
    <header class="headline"><h2>${line(name, 100)}</h2>${params.revision && html`<button class="chip travel" onClick=${() => adjust({ revision: null })}>revision ${params.revision} ×</button>`}
      <${TimePicker} table=${table} open=${isPicking} setOpen=${setPicking} /><div class="spring"></div>
      ${isEditing ? html`<button class="danger" onClick=${drop}>Delete</button><button class="quiet" onClick=${() => setEdited(panels.length)}>Add panel</button><button class="quiet" onClick=${() => { setPanels(loaded.value.body.panels); adjust({ edit: null }); }}>Cancel</button><button class="primary" onClick=${save}>Save</button>`
        : html`<${Revisions} name=${name} />${session.value?.roles.includes("write") && !params.revision && html`<button class="quiet" onClick=${() => adjust({ edit: "1" })}>Edit</button>`}`}
    </header>
    ${panels.length ? html`<div class="panels">${panels.map((panel, at) => html`<${Panel} key=${`${at}:${panel.title}`} panel=${panel} tools=${isEditing && html`<button class="icon" aria-label="earlier" disabled=${at === 0} onClick=${() => move(at, -1)}>←</button><button class="icon" aria-label="later" disabled=${at === panels.length - 1} onClick=${() => move(at, 1)}>→</button><button class="quiet" onClick=${() => setEdited(at)}>Edit</button><button class="icon" aria-label="remove the panel" onClick=${() => setPanels(panels.toSpliced(at, 1))}>×</button>`} />`)}</div>`
      : html`<${Empty} title="No panels yet">${isEditing ? html`<button class="primary" onClick=${() => setEdited(0)}>Add panel</button>` : "Edit the dashboard to add some."}</${Empty}>`}
    ${edited !== null && html`<${PanelForm} panel=${panels[edited]} onDone=${(panel) => { if (panel) put(edited, panel); setEdited(null); }} />`}
  </section>`;
}

function Revisions({ name }) {
  const [all, setAll] = useState(null), node = useRef();
  return html`<details class="menu right" ref=${node} onToggle=${async () => node.current.open && setAll(await revisions(KIND, name).catch(() => []))}><summary class="quiet">Revisions</summary><div class="menu-body" role="menu">
    ${all ? all.map((each) => html`<button role="menuitem" key=${each.revision} onClick=${() => { node.current.open = false; adjust({ revision: String(each.revision) }); }}>${each.revision} <span class="dim">${ago(instant(each.at))} · ${line(each.by ?? "", 30)}</span></button>`) : html`<${Busy} />`}</div></details>`;
}

export function Panel({ panel, tools }) {
  const running = useMemo(() => new Running(), []);
  const { text, language = "kql" } = panel, state = running.state.value;
  const source = tableOf(text, language);
  const snapshot = tables.value?.find((each) => each.name === source)?.snapshot; // what changes it is a commit
  const span = range.value;
  useEffect(() => { if (tables.peek() !== null) running.run({ text, language, range: span, params: route.peek().params, keep: false }); }, [text, language, span?.told ?? span?.start, span?.told ? null : span?.end, source, snapshot, tables.value === null]);
  useEffect(() => () => running.stop(), []);
  const window = useMemo(() => state.range ?? edges(state.answer?.columns.find((each) => each.kind === "time"), state.answer?.rows), [state.answer]);
  const gaps = useAsked(async (stop) => (source && window ? gapsOf(await tableInfo(source), window, state, stop) : []), [state.answer]).value ?? NONE;
  const { answer } = state, kind = panel.kind ?? state.render?.kind ?? "timechart";
  return html`<article class=${classes("panel", panel.wide && "wide")} aria-label=${panel.title} data-runs=${state.status}>
    <header><b>${line(panel.title || "untitled", 80)}</b><div class="spring"></div>${tools || html`<a class="dim small" href=${address("ask", { q: text, l: language === "kql" ? null : language, from: route.value.params.from, to: route.value.params.to })}>open</a>`}</header>
    ${state.status === "failed" ? html`<p class="bad pad">${state.failure.message}</p>` : !answer ? html`<${Busy} />` : !answer.rows ? html`<p class="dim pad">no rows</p>`
      : kind === "table" ? html`<div class="panel-grid"><${Grid} answer=${answer} label=${panel.title} /></div>` : html`<${Chart} answer=${answer} render=${{ ...state.render, kind }} gaps=${gaps} window=${window} onZoom=${(from, to) => adjust({ from: new Date(from).toISOString(), to: new Date(to).toISOString() })} height=${200} />`}
  </article>`;
}

function PanelForm({ panel, onDone }) {
  const [own, setOwn] = useState({ title: "", text: "", language: "kql", kind: "timechart", wide: false, ...panel }), node = useRef();
  useEffect(() => node.current.showModal(), []);
  const set = (more) => setOwn({ ...own, ...more });
  return html`<dialog ref=${node} class="panel-form" aria-label="panel" onClose=${() => onDone(null)}><form onSubmit=${(event) => { event.preventDefault(); onDone(own); }}>
    <h2>Panel</h2>
    <label>title <input autofocus value=${own.title} onInput=${(event) => set({ title: event.target.value })} /></label>
    <div class="row"><label>language <select value=${own.language} onChange=${(event) => set({ language: event.target.value })}>${Object.entries(LANGUAGES).map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</select></label>
    <label>shown as <select value=${own.kind} onChange=${(event) => set({ kind: event.target.value })}>${KINDS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
    <label class="check"><input type="checkbox" checked=${own.wide} onChange=${(event) => set({ wide: event.target.checked })} /> wide</label></div>
    <${Editor} text=${panel?.text ?? ""} language=${own.language} onChange=${(text) => setOwn((was) => ({ ...was, text }))} label="question of the panel" />
    <div class="buttons"><button type="button" class="quiet" onClick=${() => node.current.close()}>Cancel</button><button class="primary" disabled=${!own.text.trim()}>Done</button></div>
  </form></dialog>`;
}

