"""Parse KQL's tabular operators, each by a rule of its own.

``RULES`` is the table of operators. It does not know what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelake.query.kql import syntax
from tidelake.query.kql.expressions import Expressions

_JOIN = frozenset(("kind",))
_EXPAND = frozenset(("kind", "bagexpansion", "with_itemindex"))
_PARSE = frozenset(("kind", "flags"))
_UNION = frozenset(("kind", "withsource", "with_source", "isfuzzy", "datascope"))
# The settings that an operator takes besides hints: elsewhere such a word is the name of a column.
_SETTINGS: Mapping[str, frozenset[str]] = {
    "join": _JOIN, "lookup": _JOIN, "mv-expand": _EXPAND, "mvexpand": _EXPAND, "mv-apply": _EXPAND,
    "mvapply": _EXPAND, "parse": _PARSE, "parse-where": _PARSE, "union": _UNION, "find": _UNION, "search": _UNION,
    "make-series": _JOIN, "reduce": _JOIN, "scan": frozenset(("kind", "with_match_id", "with_step_name")),
    "partition": frozenset(("id",)), "getschema": _JOIN, "consume": frozenset(("decodeblocks",)),
}  # fmt: skip


class Operators(Expressions):
    """Read pipelines from tokens."""

    def pipe(self) -> syntax.Expression:
        start = self.token.at
        source = self._source()
        if not self.token.is_sign("|"):
            return source
        operators: list[syntax.Operator] = []
        while self.sign("|"):
            operators.append(self._operator())
        if isinstance(source, syntax.Pipe):
            return syntax.Pipe(source.source, (*source.operators, *operators), start)
        return syntax.Pipe(source, tuple(operators), start)

    def _source(self) -> syntax.Expression:
        """Read where rows come from: an operator that needs no input, or an expression."""
        if self.token.kind == "name":
            word, count = self.dashed_word()
            after = self.peek(count)
            begins = word in ("union", "print", "search", "find", "range", "evaluate", "macro-expand") and not (
                after.is_sign("=", "|", ",", ")", ";", ".", "==", "!=", "..", "}") or after.kind == "end"
            )
            if begins and word == "range":
                begins = not after.is_sign("(")
            if begins:
                return syntax.Pipe(syntax.Name("", self.token.at), (self._operator(),), self.token.at)
        source = self.expression()
        if isinstance(source, syntax.Name) and self.token.is_sign("*") and not self.token.spaced:
            self.next()
            return syntax.Wildcard(source.name + "*", source.at)
        return source

    def _operator(self) -> syntax.Operator:
        if self.token.kind != "name":
            hint = ": write or" if self.token.is_sign("|") and not self.token.spaced else ""
            raise self.error(f"expected an operator after '|', found {self.token}{hint}")
        start = self.token.at
        word, count = self.dashed_word()
        rule = RULES.get(word)
        if rule is None and count > 1 and self.token.text in RULES:
            word, count, rule = self.token.text, 1, RULES[self.token.text]
        if rule is None:
            raise self.unknown("operator", word, RULES, at=start)
        self.place += count
        settings = self._settings(_SETTINGS.get(word, frozenset()))
        with self.nested():
            items, parts = rule(self)
        return syntax.Operator(ALIASES.get(word, word), items, start, parts, settings)

    def _settings(self, known: frozenset[str]) -> dict[str, Any]:
        """Read ``kind=inner`` and its kin, which stand before what an operator works on."""
        found: dict[str, Any] = {}
        while True:
            if self.token.is_word("hint") and self.peek().is_sign("."):
                self.place += 2
                name = "hint." + self.name("a hint")
            elif self.token.kind == "name" and self.token.text in known and self.peek().is_sign("="):
                name = self.next().text
            else:
                return found
            self.expect_sign("=", f"after {name}")
            token = self.token
            if token.kind in ("string", "number", "typed", "span"):
                found[name] = self.literal().value
            else:
                found[name] = self.name(f"a value of {name}")
            self.sign(",")

    def search_condition(self) -> syntax.Expression:
        """Read a condition in which ``column:"term"`` means that the column has the term."""
        self.in_search = True
        try:
            return self.expression()
        finally:
            self.in_search = False

    def orderings(self) -> tuple[syntax.Ordering, ...]:
        return self.several(self._ordering)

    def _ordering(self) -> syntax.Ordering:
        value = self.named_expression()
        ascending = self.token.is_word("asc")
        if self.token.is_word("asc", "desc"):
            self.next()
        nulls_first = ascending
        if self.word("nulls"):
            if not self.token.is_word("first", "last"):
                raise self.error(f"expected 'first' or 'last' after nulls, found {self.token}")
            nulls_first = self.next().text == "first"
        return syntax.Ordering(value, not ascending, nulls_first)

    def column_patterns(self) -> tuple[syntax.Expression, ...]:
        return self.several(self._column_pattern)

    def _column_pattern(self) -> syntax.Expression:
        """Read a column's name, which may hold stars; words in it touch each other."""
        start = self.token.at
        if self.is_bracketed_name():
            return syntax.Name(self.name("a column"), start)
        pattern = ""
        while (self.token.kind in ("name", "number") or self.token.is_sign("*")) and (
            not pattern or not self.token.spaced
        ):
            pattern += self.next().text
        if not pattern:
            raise self.error(f"expected a column, found {self.token}")
        if "*" in pattern:
            return syntax.Wildcard(pattern, start)
        name: syntax.Expression = syntax.Name(pattern, start)
        while self.token.is_sign(".", "["):
            if self.token.is_sign("["):
                self.next()
                index = self.expression()
                self.expect_sign("]", "after an index")
                name = syntax.Index(name, index, start)
            else:
                self.next()
                name = syntax.Member(name, self.name("a name after '.'"), start)
        if self.token.is_sign("("):
            self.place -= 1
            return self.expression()
        return name


Rule = Callable[[Operators], tuple[tuple[Any, ...], Mapping[str, Any]]]


def _expressions(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return p.several(p.named_expression), {}


def _renames(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Read what is renamed, which may be nothing."""
    if p.token.kind == "end" or p.token.is_sign("|", ")", ";", "}"):
        return (), {}
    return _expressions(p)


def _where(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return (p.expression(),), {}


def _patterns(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return p.column_patterns(), {}


def _reorder(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    def item() -> tuple[syntax.Expression, str]:
        pattern = p._column_pattern()
        order, count = p.dashed_word() if p.token.kind == "name" else ("", 0)
        if order not in ("asc", "desc", "granny-asc", "granny-desc"):
            return pattern, ""
        p.place += count
        return pattern, order

    return p.several(item), {}


def _maybe_expressions(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if p.token.kind == "end" or p.token.is_sign("|", ")", ";", "}"):
        return (), {}
    return _expressions(p)


def _summarize(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    items = () if p.token.is_word("by") and not p.peek().is_sign("=") else p.several(p.named_expression)
    if not p.word("by"):
        return items, {}
    by = p.several(p.named_expression)
    return items, {"by": by}


def _nothing(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return (), {}


def _count(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if p.word("as"):
        return (p.name("a name for the count"),), {}
    return (), {}


def _top(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    count = p.expression()
    p.expect_word("by", "after the count of top")
    return (count,), {"by": p.orderings()}


def _sort(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    p.expect_word("by", "after sort")
    return p.orderings(), {}


def _distinct(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return p.several(p.named_expression), {}


def _union(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    def item() -> syntax.Expression:
        if count := p.pattern_ahead("."):
            return p.table_pattern(count, "", p.token.at)
        return p.expression()

    return p.several(item), {}


def _join(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    right = p._path()
    settings = p._settings(_JOIN)
    if p.word("on"):
        return (right,), {"on": p.several(p.expression), "late": settings}
    if p.word("where"):
        return (right,), {"where": p.expression(), "late": settings}
    return (right,), {"late": settings}


def _lookup(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return _join(p)


def _mv_item(p: Operators) -> tuple[syntax.Expression, str | None]:
    value = p.named_expression()
    kind = None
    if p.token.is_word("to") and p.peek().is_word("typeof"):
        p.next()
        typed = p._typeof(p.next())
        if len(typed.columns) != 1:
            raise p.error("typeof takes one type here", at=typed.at)
        kind = typed.columns[0][1]
    return value, kind


def _mv_expand(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    items = p.several(lambda: _mv_item(p))
    return items, {"limit": p.expression() if p.word("limit") else None}


def _mv_apply(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    items, parts = _mv_expand(p)
    p.expect_word("on", "after the columns of mv-apply")
    return items, {**parts, "on": _subquery(p)}


def _subquery(p: Operators) -> tuple[syntax.Operator, ...]:
    """Read ``(operator | operator …)``, which works on rows that stand outside."""
    closing = {"(": ")", "{": "}"}.get(p.token.text, "")
    if not closing or p.token.kind != "sign":
        raise p.error(f"expected '(' before a subquery, found {p.token}")
    p.next()
    operators = [p._operator()]
    while p.sign("|"):
        operators.append(p._operator())
    p.expect_sign(closing, "after a subquery")
    return tuple(operators)


def _parse(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    subject = p.expression()
    p.expect_word("with", "after what parse reads")
    pieces: list[Any] = []
    while not (p.token.kind == "end" or p.token.is_sign("|", ")", ";", "}")):
        token = p.token
        if token.kind == "string":
            pieces.append(p._strings())
        elif p.sign("*"):
            pieces.append(syntax.Wildcard("*", token.at))
        elif p.is_name():
            name = p.name("a column")
            pieces.append((name, p.type_name() if p.sign(":") else "string", token.at))
        else:
            raise p.error(f"expected a text, a column or '*' in the pattern of parse, found {token}")
        p.sign(",")
    if not pieces:
        raise p.error("the pattern of parse is empty")
    return (subject,), {"with": tuple(pieces)}


def _parse_kv(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    subject = p.expression()
    p.expect_word("as", "after what parse-kv reads")
    columns = p.column_types("of parse-kv")
    return (subject,), {"as": columns, "with": p.properties() if p.word("with") else ()}


def _make_series(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    def item() -> tuple[syntax.Expression, syntax.Expression | None]:
        value = p.named_expression()
        default = None
        if p.token.is_word("default") and p.peek().is_sign("="):
            p.place += 2
            default = p.expression()
        return value, default

    items = p.several(item)
    p.expect_word("on", "after the aggregates of make-series")
    name = p._assigned_name()
    axis = p._sum()
    parts: dict[str, Any] = {"on": syntax.Named((name,), axis, axis.at) if name else axis}
    if p.word("in"):
        p.expect_word("range", "after in")
        p.expect_sign("(", "after range")
        parts["from"], parts["to"], parts["step"] = (p.expression(), _after(p), _after(p))
        p.expect_sign(")", "after the bounds of range")
        parts["closed"] = True
    else:
        for word in ("from", "to", "step"):
            if p.word(word):
                parts[word] = p.expression()
    if "step" not in parts:
        raise p.error(f"expected 'step' in make-series, found {p.token}")
    if p.word("by"):
        parts["by"] = p.several(p.named_expression)
    return items, parts


def _after(p: Operators) -> syntax.Expression:
    p.expect_sign(",", "between the bounds of range")
    return p.expression()


def _render(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    kind = p.name("a kind of chart")
    properties: dict[str, str] = {}
    if p.word("with"):
        p.expect_sign("(", "after with")
        while not p.token.is_sign(")"):
            name = p.name("a property")
            p.expect_sign("=", "after a property's name")
            properties[name] = _raw(p)
            if not p.sign(","):
                break
        p.expect_sign(")", "after properties")
    else:
        while p.token.kind == "name" and p.peek().is_sign("="):
            name = p.next().text
            p.next()
            properties[name] = _raw(p)
    return (kind,), {"properties": properties}


def _raw(p: Operators) -> str:
    """Read a property's value as text: a literal, or names with commas between them."""
    if p.token.kind in ("string", "number", "span", "typed"):
        return str(p.literal().value)
    names = [p.name("a value")]
    while p.token.is_sign(",") and p.peek().kind == "name" and not p.peek(2).is_sign("="):
        p.next()
        names.append(p.name("a value"))
    return ", ".join(names)


def _range(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    name = p.name("a column for the range")
    p.expect_word("from", "after the column of range")
    low = p.expression()
    p.expect_word("to", "after where the range begins")
    high = p.expression()
    p.expect_word("step", "after where the range ends")
    return (name,), {"from": low, "to": high, "step": p.expression()}


def _search(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    parts = _asked_tables(p, "search")
    return (p.search_condition(),), parts


def _find(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    parts = _asked_tables(p, "find")
    p.word("where")
    items = (p.search_condition(),)
    found, count = p.dashed_word() if p.token.kind == "name" else ("", 0)
    if found in ("project", "project-smart"):
        p.place += count
        if found == "project":
            parts["project"] = p.several(lambda: _found_column(p))
    return items, parts


def _asked_tables(p: Operators, operator: str) -> dict[str, Any]:
    """Read ``in (table, …)``, where it stands."""
    if not p.word("in"):
        return {}
    p.expect_sign("(", "after in")
    tables = _union(p)[0]
    p.expect_sign(")", f"after the tables of {operator}")
    return {"in": tables}


def _found_column(p: Operators) -> tuple[str, str]:
    """Read a column that find shows, perhaps with a type; the bag of all the others has no name."""
    if p.token.is_word("pack_all", "pack") and p.peek().is_sign("("):
        p._call(p.next())
        return "", ""
    name = p.name("a column")
    return name, p.type_name() if p.sign(":") else ""


def _top_hitters(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    count = p.expression()
    p.expect_word("of", "after the count of top-hitters")
    value = p.named_expression()
    return (count, value), {"by": p.named_expression() if p.word("by") else None}


def _evaluate(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    name = p.next()
    call = p._call(name)
    columns = None
    if p.sign(":"):
        columns = p.column_types("of the plugin's result")
    return (call,), {"columns": columns}


def _as(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return (p.name("a name"),), {}


def _invoke(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    return (p._call(p.next()),), {}


def _top_nested(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    levels: list[Any] = []
    while True:
        count = None if p.token.is_word("of") else p.expression()
        p.expect_word("of", "after the count of top-nested")
        value = p.named_expression()
        others = None
        if p.word("with"):
            p.expect_word("others", "after with")
            p.expect_sign("=", "after others")
            others = p.expression()
        p.expect_word("by", "after what top-nested groups")
        levels.append((count, value, others, p._ordering()))
        if not p.sign(","):
            return tuple(levels), {}
        p.place += p.dashed_word()[1]


def _partition(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    p.expect_word("by", "after partition")
    at = p.token.at
    column: syntax.Expression = syntax.Name(p.name("a column"), at)
    while p.sign("."):
        column = syntax.Member(column, p.name("a name after '.'"), at)
    settings = p._settings(frozenset())
    start = p.place
    try:
        return (column,), {"on": _subquery(p), "late": settings}
    except ValueError:
        p.place = start
    p.expect_sign("{", "before the subquery of partition")
    query = p.pipe()
    p.expect_sign("}", "after the subquery of partition")
    return (column,), {"query": query}


def _fork(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    found: list[Any] = []
    while p.token.is_sign("(") or p.peek().is_sign("="):
        if not p.token.is_sign("("):
            p.place += 2
        found.append(_subquery(p))
    if not found:
        raise p.error(f"expected '(' after fork, found {p.token}")
    return tuple(found), {}


def _facet(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    p.expect_word("by", "after facet")
    columns = p.column_patterns()
    return columns, {"with": _subquery(p) if p.word("with") else None}


def _reduce(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    p.expect_word("by", "after reduce")
    value = p.expression()
    given: dict[str, Any] = {}
    if p.word("with"):
        while p.token.kind == "name":
            name = p.next().text
            p.expect_sign("=", "after a setting of reduce")
            given[name] = p.expression()
            p.sign(",")
    return (value,), {"with": given}


def _sample_distinct(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    count = p.expression()
    p.expect_word("of", "after the count of sample-distinct")
    return (count, p.expression()), {}


def _scan(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if p.word("order"):
        p.expect_word("by", "after order")
        p.orderings()
    if p.word("partition"):
        p.expect_word("by", "after partition")
        p.several(p.expression)
    declared = p.parameters() if p.word("declare") else ()
    p.expect_word("with", "before the steps of scan")
    p.expect_sign("(", "before the steps of scan")
    steps: list[Any] = []
    while p.word("step"):
        name = p.name("a step")
        p.word("optional")
        if p.word("output"):
            p.expect_sign("=", "after output")
            p.name("what to output")
        p.expect_sign(":", "after a step's name")
        condition = p.expression()
        assigned = p.several(p.named_expression) if p.sign("=>") else ()
        p.expect_sign(";", "after a step")
        steps.append((name, condition, assigned))
    p.expect_sign(")", "after the steps of scan")
    return tuple(steps), {"declare": declared}


def _skipped(p: Operators) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Step over what an operator works on, up to the next: it is refused when it is bound."""
    depth = 0
    while p.token.kind != "end":
        depth += p.token.is_sign("(", "[", "{")
        if not depth and p.token.is_sign("|", ";", ")", "}"):
            break
        depth -= p.token.is_sign(")", "]", "}")
        p.next()
    return (), {}


ALIASES = {"filter": "where", "limit": "take", "order": "sort", "mvexpand": "mv-expand", "mvapply": "mv-apply"}

RULES: Mapping[str, Rule] = {
    "where": _where, "filter": _where, "project": _maybe_expressions, "extend": _expressions, "project-away": _patterns,
    "project-keep": _patterns, "project-reorder": _reorder, "project-rename": _renames, "summarize": _summarize,
    "count": _count, "take": _where, "limit": _where, "top": _top, "sort": _sort, "order": _sort,
    "distinct": _distinct, "union": _union, "join": _join, "lookup": _lookup, "mv-expand": _mv_expand,
    "mvexpand": _mv_expand, "mv-apply": _mv_apply, "mvapply": _mv_apply, "parse": _parse, "parse-where": _parse,
    "parse-kv": _parse_kv, "make-series": _make_series, "render": _render, "print": _expressions, "range": _range,
    "search": _search, "find": _find, "evaluate": _evaluate, "as": _as, "invoke": _invoke, "top-nested": _top_nested,
    "top-hitters": _top_hitters,
    "partition": _partition, "serialize": _maybe_expressions, "getschema": _nothing, "sample": _where,
    "sample-distinct": _sample_distinct, "consume": _nothing, "fork": _fork, "facet": _facet, "reduce": _reduce,
    "scan": _scan, "project-by-names": _expressions, "execute-and-cache": _nothing, "make-graph": _skipped,
    "graph-match": _skipped, "graph-shortest-paths": _skipped, "graph-to-table": _skipped,
    "graph-mark-components": _skipped, "graph-where-nodes": _skipped, "graph-where-edges": _skipped,
    "graph-merge": _skipped, "macro-expand": _skipped, "assert-schema": _skipped,
}  # fmt: skip
