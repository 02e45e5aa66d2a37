// The editor: CodeMirror in a shadow root, whose styles a strict policy allows because they are made, not written into
// the document. Completion is the server's; a mistake is underlined at its place. It does not run questions.
import { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap, completionStatus, startCompletion } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching } from "@codemirror/language";
import { Compartment, EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder, tooltips } from "@codemirror/view";
import { post } from "./api.js";
import { html, useEffect, useRef } from "./core.js";
import { colours, languages } from "./languages.js";

const setMistake = StateEffect.define();
const mistakes = StateField.define({
  create: () => Decoration.none,
  update(marks, change) {
    for (const effect of change.effects) if (effect.is(setMistake)) return effect.value ? Decoration.set(effect.value) : Decoration.none;
    return change.docChanged ? Decoration.none : marks.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const look = EditorView.theme({
  "&": { fontSize: "13px", backgroundColor: "transparent", color: "var(--ink)", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-content": { fontFamily: "var(--mono)", padding: "8px 0", caretColor: "var(--accent)" },
  ".cm-line": { padding: "0 12px 0 6px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "transparent", border: "none", color: "var(--ink-4)", paddingLeft: "4px" },
  ".cm-activeLine": { backgroundColor: "var(--wash)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--select) !important" },
  ".cm-placeholder": { color: "var(--ink-4)" },
  ".cm-matchingBracket": { backgroundColor: "var(--select)", outline: "none" },
  ".cm-mistake": { textDecoration: "underline wavy var(--bad) 1.5px", textUnderlineOffset: "4px", backgroundColor: "var(--bad-wash)" },
  ".cm-tooltip": { border: "1px solid var(--edge)", borderRadius: "8px", backgroundColor: "var(--raised)", boxShadow: "var(--shadow)", overflow: "hidden" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12px", maxHeight: "260px", padding: "4px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 8px", borderRadius: "5px", display: "flex", gap: "8px", alignItems: "baseline" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--select)", color: "var(--ink)" },
  ".cm-completionDetail": { color: "var(--ink-3)", fontStyle: "normal", marginLeft: "auto", paddingLeft: "16px", fontSize: "11px" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700", color: "var(--accent)" },
  ".cm-completionInfo": { fontFamily: "var(--sans)", fontSize: "12px", padding: "6px 10px", maxWidth: "320px", color: "var(--ink-2)", whiteSpace: "pre-wrap" },
  ".cm-completionIcon": { color: "var(--ink-3)", opacity: 1, width: "1.2em" },
});

// Ask the server what may stand here.
async function complete(language, context) {
  const before = context.matchBefore(/[\w.$-]*/);
  if (!context.explicit && (!before || before.from === before.to) && !/[|.(\s]$/.test(context.state.sliceDoc(Math.max(0, context.pos - 1), context.pos))) return null;
  if (!context.explicit && before && before.from === before.to && !/\|\s$/.test(context.state.sliceDoc(Math.max(0, context.pos - 2), context.pos))) return null;
  const stop = new AbortController();
  context.addEventListener("abort", () => stop.abort(), { onDocChange: true });
  try {
    const told = await (await post("/v1/complete", { text: context.state.doc.toString(), position: context.pos, language }, { stop: stop.signal })).json();
    if (!told.options.length) return null;
    return {
      from: told.from, to: told.to ?? context.pos,
      options: told.options.map((each) => ({ label: each.label, type: each.kind, detail: each.detail, info: each.info ? () => document.createTextNode(each.info) && informed(each.info) : undefined, apply: each.apply ?? each.label, boost: each.boost })),
      validFor: /^[\w-]*$/,
    };
  } catch {
    return null; // typing goes on without
  }
}

function informed(text) {
  const node = document.createElement("div");
  node.textContent = text;
  return node;
}

// The editor holds what is typed; text is what somebody else puts there, anew at every turn.
export function Editor({ text, turn, language, failure, onChange, onRun, onLeave, label = "question", handle, hint, lines = true }) {
  const place = useRef(), view = useRef(), tongue = useRef(new Compartment()), latest = useRef({}), ran = useRef(null);
  latest.current = { language, onChange, onRun, onLeave };
  useEffect(() => {
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: "open" });
    const run = (v) => {
      closeCompletion(v);
      ran.current = v.state.doc.toString();
      latest.current.onRun?.(ran.current);
      return true;
    };
    const leave = (v) => {
      if (completionStatus(v.state)) return false;
      v.contentDOM.blur();
      latest.current.onLeave?.();
      return true;
    };
    const own = view.current = new EditorView({
      parent: root, root,
      state: EditorState.create({
        doc: text,
        extensions: [
          Prec.highest(keymap.of([
            { key: "Mod-Enter", run },
            { key: "Shift-Enter", run },
            { key: "Tab", run: (v) => acceptCompletion(v) || completionStatus(v.state) !== null },
            { key: "Mod-Space", run: startCompletion },
            { key: "Escape", run: leave },
          ])),
          lines ? lineNumbers() : [], history(), drawSelection(), bracketMatching(), closeBrackets(), highlightActiveLine(),
          keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
          autocompletion({ override: [(context) => complete(latest.current.language, context)], activateOnTypingDelay: 40, maxRenderedOptions: 60, interactionDelay: 20, icons: false }),
          tooltips({ position: "fixed", parent: root }),
          tongue.current.of(languages[language]), colours, look, mistakes, EditorView.lineWrapping,
          placeholder(hint ?? "obs.logs | where message has 'timeout' | take 100"),
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", autocapitalize: "off" }),
          EditorView.updateListener.of((change) => change.docChanged && latest.current.onChange?.(change.state.doc.toString())),
        ],
      }),
    });
    if (handle) handle.current = { focus: () => own.focus(), insert: (told) => own.dispatch(own.state.replaceSelection(told)), view: own };
    return () => own.destroy();
  }, []);
  useEffect(() => view.current.dispatch({ effects: tongue.current.reconfigure(languages[language]) }), [language]);
  useEffect(() => {
    const own = view.current;
    if (text !== ran.current && own.state.doc.toString() !== text) own.dispatch({ changes: { from: 0, to: own.state.doc.length, insert: text } });
    ran.current = null;
  }, [text, turn]);
  useEffect(() => {
    const own = view.current, size = own.state.doc.length;
    if (!failure || failure.at === undefined || !size) { own.dispatch({ effects: setMistake.of(null) }); return; }
    const from = Math.max(0, Math.min(failure.at, size - 1));
    const word = /^(\w+|\S)/.exec(own.state.sliceDoc(from, from + 80));
    const to = Math.min(size, from + Math.max(1, word?.[0].length ?? 1));
    own.dispatch({ effects: setMistake.of([Decoration.mark({ class: "cm-mistake", attributes: { title: failure.message } }).range(from, to)]) });
  }, [failure]);
  return html`<div class="editor" ref=${place}></div>`;
}
