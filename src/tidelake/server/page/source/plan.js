// What a question read, and why so little: each scan as a funnel from the whole snapshot to the bytes that were needed.
// It does not run the question: it is planned once more.
import { post } from "./api.js";
import { html } from "./core.js";
import { count, plural, size } from "./format.js";
import { Busy, Empty, Wrong, useAsked } from "./shell.js";

export function Plan({ state, language }) {
  const { value, failure, isBusy } = useAsked(async (stop) => (language === "promql" ? null : (await post("/v1/explain", { [language]: state.sent, ...state.about }, { stop })).json()), [state.answer]);
  if (language === "promql") return html`<${Empty} title="PromQL is planned as it is asked">The samples it needs are found by their times, names and labels.</${Empty}>`;
  if (failure) return html`<${Wrong} failure=${failure} />`;
  if (isBusy || !value) return html`<${Busy}>planning</${Busy}>`;
  const scans = value.scans ?? [];
  return html`<div class="plan">
    ${value.warnings?.map((each) => html`<p class="banner warn" key=${each}>${each}</p>`)}
    ${scans.length ? scans.map((scan, at) => html`<${Funnel} key=${at} scan=${scan} />`) : html`<p class="dim">No table is read for this.</p>`}
    <details><summary class="quiet">As text</summary><pre>${value.text ?? value.plan}</pre></details>
  </div>`;
}

export function Funnel({ scan }) {
  const most = Math.max(...scan.stages.map((each) => each.bytes ?? 0), 1);
  const last = scan.stages.at(-1), share = last ? (last.bytes ?? 0) / most : 0;
  return html`<section class="funnel" aria-label=${`what ${scan.table} was read for`}>
    <h3>${scan.table} <span class="dim">${scan.snapshot ? `at snapshot ${scan.snapshot} · ` : ""}reads ${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the bytes</span></h3>
    <ol>${scan.stages.map((stage, at) => html`<li key=${at}>
      <span class="stage">${stage.name}</span>
      <span class="track"><span class="fill" style=${{ width: `${Math.max(0.3, ((stage.bytes ?? 0) / most) * 100)}%` }}></span></span>
      <span class="number">${size(stage.bytes)}</span>
      <span class="dim">${plural(stage.extents ?? 0, "extent")}${stage.blocks !== null && stage.blocks !== undefined ? `, ${plural(stage.blocks, "block")}` : ""}${stage.rows !== undefined && stage.rows !== null ? `, ${count(stage.rows)} rows` : ""}</span>
    </li>`)}</ol>
  </section>`;
}
