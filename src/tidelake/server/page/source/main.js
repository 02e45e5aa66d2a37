// Begin: find out who looks, show the view that the address names, listen for keys that go elsewhere. It does not hold
// views.
import "./locale.js";
import "./page.css";
import "uplot/dist/uPlot.min.css";
import { Ask, useKeys } from "./ask.js";
import { Board, Boards } from "./boards.js";
import { effect, html, render } from "./core.js";
import { NameDialog } from "./documents.js";
import { Health } from "./health.js";
import { Empty, Shell, VIEWS, isHelp } from "./shell.js";
import { begin, go, isDark, route } from "./state.js";
import { Table, Tables } from "./tables.js";
import { Tail } from "./tail.js";
import { Trace } from "./trace.js";

const SHOWN = { ask: Ask, tail: Tail, tables: Tables, table: Table, boards: Boards, board: Board, health: Health, trace: Trace };

let isGoing = 0; // since when a key after g means a view

function Page() {
  const { view, rest } = route.value, View = SHOWN[view];
  useKeys({
    "?": () => (isHelp.value = true),
    g: () => { isGoing = Date.now(); },
    ...Object.fromEntries(VIEWS.map((each) => [each.key, () => { if (Date.now() - isGoing < 1500) go(each.id); }])),
  });
  return html`<${Shell}>${View ? html`<${View} key=${`${view}/${rest[0] ?? ""}`} />` : html`<${Empty} title="There is no such view" />`}<${NameDialog} /></${Shell}>`;
}

effect(() => { document.documentElement.dataset.theme = isDark.value ? "dark" : "light"; });
effect(() => { const { view, rest } = route.value; document.title = `${rest[0] ?? VIEWS.find((each) => each.id === view)?.name ?? view} · Tidelake`; });
const root = document.getElementById("page");
root.replaceChildren();
render(html`<${Page} />`, root);
begin();
