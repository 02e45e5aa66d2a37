// Colour the three languages as they are typed: words, names of functions, texts, numbers, times, comments. It does not
// parse: the server says what is wrong.
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { tags as t } from "@lezer/highlight";

const KQL = "where|filter|summarize|by|project|project-away|project-keep|project-rename|project-reorder|extend|count|take|limit|top|sort|order|distinct|join|union|let|render|mv-expand|mv-apply|parse|parse-where|parse-kv|make-series|evaluate|search|find|lookup|sample|sample-distinct|serialize|scan|partition|fork|facet|as|consume|invoke|print|range|datatable|externaldata|top-nested|reduce|getschema|on|kind|asc|desc|nulls|first|last|from|to|step|with|of|default|typeof|inner|innerunique|leftouter|rightouter|fullouter|leftanti|rightanti|leftsemi|rightsemi";
const KQL_OPERATORS = "and|or|not|has|has_cs|!has|has_any|has_all|hasprefix|hassuffix|contains|contains_cs|!contains|startswith|!startswith|endswith|in|!in|in~|between|!between|matches|regex|true|false|null";
const SQL = "select|from|where|group|by|order|having|limit|offset|join|left|right|full|outer|inner|cross|on|as|with|union|all|except|intersect|distinct|case|when|then|else|end|and|or|not|in|is|null|like|ilike|rlike|between|exists|asc|desc|nulls|first|last|true|false|over|partition|rows|range|interval|timestamp|date|values|lateral|view|explode|cast|using|qualify|window|version|of|show|tables|describe";
const PROM = "by|without|on|ignoring|group_left|group_right|offset|bool|and|or|unless|start|end|inf|nan";

const set = (words) => new Set(words.split("|"));

function tokens({ words, operators = new Set(), lineComment, blockComment, quotes, isCase, dashes }) {
  return {
    startState: () => ({ block: false, bar: false }),
    token(stream, state) {
      if (state.block) {
        if (stream.skipTo("*/")) { stream.match("*/"); state.block = false; } else stream.skipToEnd();
        return "comment";
      }
      if (stream.eatSpace()) return null;
      if (stream.match(lineComment)) { stream.skipToEnd(); return "comment"; }
      if (blockComment && stream.match("/*")) { state.block = true; return "comment"; }
      const c = stream.peek();
      if (quotes.includes(c)) {
        stream.next();
        while (!stream.eol()) {
          const next = stream.next();
          if (next === "\\" && isCase) stream.next();
          else if (next === c) break;
        }
        return c === "`" ? "variableName" : "string";
      }
      if (stream.match(/^\$[A-Za-z_]\w*/)) return "meta";
      if (stream.match(/^\d[\d_]*(\.\d+)?([eE][+-]?\d+)?(ms|microsecond|tick|s|m|h|d|w|y)?\b/)) return "number";
      if (stream.match(dashes ? /^!?[A-Za-z_][\w]*(-(?:away|keep|rename|reorder|expand|apply|where|kv|series|distinct|nested))?~?/ : /^[A-Za-z_]\w*/)) {
        const word = isCase ? stream.current() : stream.current().toLowerCase();
        if (operators.has(word)) return "operatorKeyword";
        if (words.has(word) && !stream.match(/^\s*\.\w/, false)) return "keyword";
        if (stream.match(/^\s*\(/, false)) return "function";
        return "variableName";
      }
      if (stream.match(/^(==|!=|=~|!~|<=|>=|<>|\.\.|[|+\-*/%=<>^])/)) return stream.current() === "|" ? "separator" : "operator";
      stream.next();
      return "punctuation";
    },
    languageData: { commentTokens: { line: lineComment }, closeBrackets: { brackets: ["(", "[", "{", "'", '"'] } },
    tokenTable: { function: t.function(t.variableName), separator: t.separator, meta: t.meta },
  };
}

export const languages = {
  kql: StreamLanguage.define(tokens({ words: set(KQL), operators: set(KQL_OPERATORS), lineComment: "//", quotes: "'\"", isCase: true, dashes: true })),
  sql: StreamLanguage.define(tokens({ words: set(SQL), lineComment: "--", blockComment: true, quotes: "'\"`" })),
  promql: StreamLanguage.define(tokens({ words: set(PROM), lineComment: "#", quotes: "'\"`", isCase: true })),
};

export const colours = syntaxHighlighting(HighlightStyle.define([
  { tag: t.keyword, color: "var(--code-word)", fontWeight: "600" },
  { tag: t.operatorKeyword, color: "var(--code-word)" },
  { tag: t.function(t.variableName), color: "var(--code-call)" },
  { tag: t.string, color: "var(--code-text)" },
  { tag: t.number, color: "var(--code-number)" },
  { tag: t.comment, color: "var(--ink-3)", fontStyle: "italic" },
  { tag: t.separator, color: "var(--accent)", fontWeight: "700" },
  { tag: t.meta, color: "var(--code-number)", fontWeight: "600" },
  { tag: [t.operator, t.punctuation], color: "var(--ink-2)" },
]));
