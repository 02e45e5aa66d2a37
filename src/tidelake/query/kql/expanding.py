"""Lower the operators that make rows or columns out of values: mv-expand, mv-apply, parse, range, evaluate.

It does not group or join, but for plugins that do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from tidelake.model.lexer import did_you_mean
from tidelake.query.functions.patterns import plain_groups
from tidelake.query.kql import advice, syntax
from tidelake.query.kql.advice import refusal
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.columns import rebuilt
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.grouping import summarize
from tidelake.query.kql.joining import _equal, _joined, _other_alias, _pairs
from tidelake.query.kql.naming import name_of, unique
from tidelake.query.kql.plugins import ACTIVITY
from tidelake.query.kql.relations import Relation, aliased, fresh_key, keyed
from tidelake.query.kql.scope import column_sql
from tidelake.query.kql.values import Column, Value, call, literal, text, text_literal

PLUGINS = ("bag_unpack", "pivot", "ipv4_lookup", "ipv6_lookup", *ACTIVITY)
RANGE_BLOCK = (
    8_192  # numbers that are counted out at a time: engines make a list for each of some thousand rows at once
)
_IN_NETWORK = {"ipv4_lookup": "tide_ipv4_is_in_range", "ipv6_lookup": "tide_ipv6_is_match"}
_CHECKED = ("datetime", "timespan", "bool", "guid")  # types that no pattern of parse tells


def mv_expand(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    return expanded(b, relation, operator, place)


def expanded(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Return a row for each item of an array; several arrays are walked side by side.

    A null gives one row, an empty array none. Items are numbered in a step, and read by number in the next.
    """
    relation = b.steps.plain(relation)
    scope = b.scope(relation, place)
    kind = "array" if "array" in (operator.settings.get("kind"), operator.settings.get("bagexpansion")) else "bag"
    items: list[tuple[str, str | None, exp.Expr]] = []
    for node, wanted in operator.items:
        value = b.bind(node, scope)
        if value.type == "string":
            value = Value(call("tide_parse_json", value.sql), "dynamic")
        name = name_of(node) or unique("Column1", [*relation.by_name, *(item[0] for item in items)])
        items.append((name, wanted, call(f"tide_items_{kind}", convert(value, "dynamic").sql)))
    taken = [column.key for column in (*relation.columns, *relation.hidden)]
    lists = [Column("", "", fresh_key(f"items{at}", taken)) for at, _ in enumerate(items)]
    with_lists = relation.select()
    for column, (_, _, sql) in zip(lists, items, strict=True):
        with_lists = with_lists.select(aliased(sql, column.key), copy=False)
    first = b.steps.relation(with_lists, relation.columns, relation)
    index = Column("", "", fresh_key("item_index", taken))
    return _numbered(b, first, lists, index, items, operator, place)


def _numbered(
    b: Binder,
    rows: Relation,
    lists: Sequence[Column],
    index: Column,
    items: Sequence[tuple[str, str | None, exp.Expr]],
    operator: syntax.Operator,
    place: Place,
) -> Relation:
    lengths = [call("tide_list_length", column_sql(column.key, rows.alias)) for column in lists]
    longest = lengths[0] if len(lengths) == 1 else call("tide_max_of", *lengths)
    limit = operator.parts.get("limit")
    if limit is not None:
        longest = call("tide_min_of", longest, b.bind(limit, b.scope(None, place)).sql)
    query = rows.select()
    for column in lists:
        query = query.select(aliased(column_sql(column.key, rows.alias), column.key), copy=False)
    query = query.select(aliased(call("tide_explode", call("tide_indexes", longest)), index.key), copy=False)
    stepped = b.steps.relation(query, rows.columns, rows)
    at = column_sql(index.key, stepped.alias)
    chosen: dict[str, tuple[Column, exp.Expr | None]] = {column.name: (column, None) for column in stepped.columns}
    for column, (name, wanted, _) in zip(lists, items, strict=True):
        value = Value(call("tide_item", column_sql(column.key, stepped.alias), at), "dynamic")
        value = convert(value, wanted) if wanted else value
        key = chosen[name][0].key if name in chosen else fresh_key(name, [c.key for c, _ in chosen.values()])
        chosen[name] = (Column(name, value.type, key), value.sql)
    if with_index := operator.settings.get("with_itemindex"):
        key = fresh_key(str(with_index), [c.key for c, _ in chosen.values()])
        chosen[str(with_index)] = (Column(str(with_index), "long", key), at)
    return b.steps.closed(rebuilt(stepped, list(chosen.values())))


def mv_apply(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Expand each row, send its items through a subquery on their own, and give the row its results."""
    relation = b.steps.closed(relation)
    ident = Column("", "", fresh_key("row_id", [c.key for c in (*relation.columns, *relation.hidden)]))
    order = exp.Order(expressions=relation.order_sql() or [exp.Ordered(this=exp.Null())])
    numbered = relation.select().select(aliased(exp.Window(this=exp.RowNumber(), order=order), ident.key), copy=False)
    source, alias = b.steps.add(numbered)
    hidden = (*relation.hidden, ident)
    whole = replace(relation, source=source, alias=alias, hidden=hidden, items={}, where=())
    parted = replace(whole, hidden=(ident,), partition=(ident,), order=())
    inner = expanded(b, parted, operator, place)
    result = b.steps.closed(b.pipeline(inner, operator.parts["on"], place))
    replaced = {name_of(node) for node, _ in operator.items}
    left = replace(
        whole, columns=tuple(c for c in whole.columns if c.name not in replaced or c.name not in result.by_name)
    )
    fresh = [c for c in result.columns if c.name not in left.by_name or c.name in replaced]
    right = _other_alias(b, left, replace(result, columns=tuple(fresh)))
    condition = exp.EQ(this=column_sql(ident.key, left.alias), expression=column_sql(ident.key, right.alias))
    return _joined(b, replace(left, partition=relation.partition), right, condition, "inner", set())


def partition(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Send the rows of each value of a column through a subquery on their own."""
    if "on" not in operator.parts:
        raise b.error(
            operator.at, "partition with a whole query is not supported: begin with an operator", kind="unsupported"
        )
    relation = b.steps.plain(relation)
    value = b.bind(operator.items[0], b.scope(relation, place))
    part = Column("", "", fresh_key("part", [c.key for c in (*relation.columns, *relation.hidden)]))
    keyed_rows = b.steps.closed(
        replace(relation, hidden=(*relation.hidden, part), items={**relation.items, part.key: value.sql})
    )
    parted = replace(keyed_rows, hidden=(part,), partition=(part,), order=())
    result = b.steps.closed(b.pipeline(parted, operator.parts["on"], place))
    return replace(result, partition=(), hidden=(), order=())


def parse(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Cut a text into columns by a pattern of texts, columns and stars."""
    relation = b.steps.plain(relation)
    subject = b.expect_text(
        b.bind(operator.items[0], b.scope(relation, place)), b.scope(relation, place), operator.at, "what parse reads"
    )
    pattern, groups = _parse_pattern(b, operator)
    if operator.name == "parse-where":
        relation = relation.filtered(call("tide_matches", subject.sql, text_literal(pattern)))
    chosen: dict[str, tuple[Column, exp.Expr | None]] = {c.name: (c, None) for c in relation.columns}
    for name, kind, group in groups:
        found = Value(call("tide_extract", text_literal(pattern), exp.Literal.number(group), text(subject)), "string")
        key = (
            chosen[name][0].key
            if name in chosen
            else fresh_key(name, [c.key for c, _ in chosen.values()] + [c.key for c in relation.hidden])
        )
        chosen[name] = (Column(name, kind, key), convert(found, kind).sql)
    made = rebuilt(relation, list(chosen.values()))
    checked = [name for name, kind, _ in groups if kind in _CHECKED and operator.settings.get("kind") != "relaxed"]
    return _strictly(b, made, operator, checked, [name for name, _, _ in groups]) if checked else made


def _strictly(
    b: Binder, relation: Relation, operator: syntax.Operator, checked: Sequence[str], parsed: Sequence[str]
) -> Relation:
    """Empty all that was parsed where a part is not of its type; parse-where leaves such rows out."""
    relation = b.steps.closed(relation)
    sides = {name: column_sql(relation.by_name[name].key, relation.alias) for name in parsed}
    read = exp.and_(*(exp.Not(this=exp.Is(this=sides[name].copy(), expression=exp.Null())) for name in checked))
    if operator.name == "parse-where":
        return relation.filtered(read)
    emptied = {name: exp.Case(ifs=[exp.If(this=read.copy(), true=side)]) for name, side in sides.items()}
    return rebuilt(relation, [(column, emptied.get(column.name)) for column in relation.columns])


def _parse_pattern(b: Binder, operator: syntax.Operator) -> tuple[str, list[tuple[str, str, int]]]:
    is_regex, relaxed = (operator.settings.get("kind") == kind for kind in ("regex", "relaxed"))
    asked = str(operator.settings.get("flags", ""))
    flags = "".join(flag for flag in "ims" if flag in asked) if is_regex else "s"
    greedy = is_regex and "U" not in asked
    pieces = operator.parts["with"]
    pattern, groups, count = "", [], 0
    for at, piece in enumerate(pieces):
        is_last = at == len(pieces) - 1
        match piece:
            case syntax.Literal(_, str(words)):
                pattern += plain_groups(words) if is_regex else escaped(words)
                count += groups_in(b, words, piece.at) if is_regex else 0
            case syntax.Wildcard():
                pattern += ".*" if is_last else ".*?"
            case (name, kind, _):
                count += 1
                groups.append((name, kind, count))
                skips = not is_last and isinstance(pieces[at + 1], syntax.Wildcard)
                if skips and kind in _BEFORE_STAR and not is_regex:
                    pattern += f"(?:{_BEFORE_STAR[kind]})?" if relaxed else _BEFORE_STAR[kind]
                else:
                    pattern += _capture("string" if relaxed else kind, is_last or greedy)
    return f"{f'(?{flags})' if flags else ''}^{pattern}$", groups


# What a column takes where a star follows, which would take all: as much as looks like its type.
_NUMBER = r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
_BEFORE_STAR = {
    "long": r"\s*([-+]?[0-9]+)", "int": r"\s*([-+]?[0-9]+)", "real": _NUMBER, "decimal": _NUMBER,
    "bool": r"\s*([Tt]rue|[Ff]alse|TRUE|FALSE|[01])", "datetime": r"\s*([0-9]{1,4}[-/][0-9]{1,2}[-/][0-9T:. Z+-]+)",
    "timespan": r"\s*(-?[0-9.:]+[a-z]*)", "guid": r"\s*([0-9a-fA-F-]{32,36})",
}  # fmt: skip


def _capture(kind: str, greedy: bool) -> str:
    if kind in ("long", "int"):
        return r"\s*([-+]?[0-9]+)\s*"
    if kind in ("real", "decimal"):
        return r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*"
    return "(.*)" if greedy else "(.*?)"


def groups_in(b: Binder, pattern: str, at: int) -> int:
    """Count the groups of a regular expression; one that is none is an error."""
    try:
        return re.compile(re.sub(r"\\[pP](\{\w*\}|\w)", ".", pattern)).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise b.error(at, f"not a regular expression: {error}") from None


def escaped(words: str) -> str:
    """Return a pattern that matches a text as it stands, in every engine's dialect."""
    return re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", words)


def range_rows(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    scope = b.scope(None, place)
    low, high, step = (b.bind(operator.parts[word], scope) for word in ("from", "to", "step"))
    kind = "datetime" if low.type == "datetime" else "real" if "real" in (low.type, high.type, step.type) else low.type
    if kind not in ("datetime", "real", "long", "int", "timespan"):
        raise b.error(operator.at, f"range cannot count with {kind}", kind="type")
    if step.is_constant and step.constant == 0:
        raise b.error(operator.parts["step"].at, "the step of a range must not be zero")
    sort = {"datetime": "datetime", "real": "real"}.get(kind, "long")
    low, high = (b.expect(side, kind, scope, operator.at, "a bound of range") for side in (low, high))
    if kind == "datetime":
        step = b.expect(step, "timespan", scope, operator.at, "the step of a range of times")
    last = call(f"tide_bin_index_{sort}", high.sql, low.sql, step.sql)
    count = exp.Add(this=last, expression=exp.Literal.number(1))
    known = [side.constant for side in (low, high, step)]
    if sort == "long" and all(isinstance(each, int) for each in known):  # engines count as far as they are asked to
        first, final, by = (int(each) for each in known)
        rows = exp.select(aliased(column_sql("i", "r"), "i")).from_(counted((final - first) // by + 1))
        source, alias = b.steps.add(rows)
    else:
        source, alias = _counted_rows(b, count)
    (column,) = keyed([(operator.items[0], kind)])
    at = column_sql("i", alias)
    if kind == "datetime":
        sql: exp.Expr = call("tide_add_ticks", low.sql, exp.Mul(this=at, expression=exp.Paren(this=step.sql)))
    else:
        sql = exp.Add(this=low.sql, expression=exp.Mul(this=at, expression=exp.Paren(this=step.sql)))
    made = Relation(source, alias, (column,), items={column.key: sql}, serialized=True)
    return b.steps.closed(made)


def counted(count: int) -> exp.Expr:
    """Return the rows of the numbers from zero, as a table that an engine makes as it goes."""
    function = exp.Anonymous(this="range", expressions=[exp.Literal.number(0), exp.Literal.number(max(count, 0))])
    alias = exp.TableAlias(this=exp.to_identifier("r", quoted=True), columns=[exp.to_identifier("i", quoted=True)])
    return exp.Table(this=function, alias=alias)


def _counted_rows(b: Binder, count: exp.Expr) -> tuple[exp.Expr, str]:
    """Count from zero in a column ``i``, block by block: one list of all numbers would be held whole."""
    block = exp.Literal.number(RANGE_BLOCK)
    count = exp.cast(count, "BIGINT")
    blocks = exp.Add(this=exp.IntDiv(this=count, expression=block), expression=exp.Literal.number(1))
    outer, name = b.steps.add(exp.select(aliased(call("tide_explode", call("tide_indexes", blocks)), "b")))
    start = exp.Mul(this=column_sql("b", name), expression=block.copy())
    rest = exp.Sub(this=count.copy(), expression=start)
    inside = call("tide_explode", call("tide_indexes", exp.Least(this=block.copy(), expressions=[rest])))
    parts, both = b.steps.add(exp.select(aliased(start.copy(), "s"), aliased(inside, "o")).from_(outer))
    number = exp.Add(this=column_sql("s", both), expression=column_sql("o", both))
    return b.steps.add(exp.select(aliased(number, "i")).from_(parts))


def invoke(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    return b.invoke(operator.items[0], b.steps.closed(relation), place)


def evaluate(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    plugin = operator.items[0]
    match plugin.name:
        case "bag_unpack":
            return _bag_unpack(b, relation, plugin, operator.parts.get("columns"), place)
        case "pivot":
            return _pivot(b, relation, plugin, operator.parts.get("columns"), place)
        case "ipv4_lookup" | "ipv6_lookup":
            return _lookup(b, relation, plugin, place)
    if (rule := ACTIVITY.get(plugin.name)) is not None:
        return rule(b, relation, plugin, place)
    hint = did_you_mean(plugin.name, PLUGINS) or f": evaluate knows {', '.join(PLUGINS)}"
    raise b.error(plugin.at, refusal("plugin", plugin.name, advice.PLUGINS, hint), kind="unsupported")


def _bag_unpack(b: Binder, relation: Relation, plugin: syntax.Call, schema: Any, place: Place) -> Relation:
    """Make a bag's keys columns: those that are named later are read from it, the rest are unpacked at the end."""
    if not plugin.arguments or not isinstance(plugin.arguments[0], syntax.Name):
        raise b.error(plugin.at, "bag_unpack needs a column that holds a bag")
    name = plugin.arguments[0].name
    given = _options(b, plugin, ("OutputColumnPrefix", "columnsConflict", "ignoredProperties"), place)
    prefix = str(given.get("OutputColumnPrefix") or "")
    conflict = str(given.get("columnsConflict") or "error")
    if conflict not in ("error", "keep_source", "replace_source"):
        raise b.error(plugin.at, "columnsConflict is 'error', 'keep_source' or 'replace_source'")
    node: syntax.Expression = plugin.arguments[0]
    relation = b.steps.plain(relation)
    bag = convert(b.bind(node, b.scope(relation, place)), "dynamic")
    if given.get("ignoredProperties"):
        ignored = literal(given["ignoredProperties"], "dynamic")
        bag = Value(call("tide_bag_remove_keys", bag.sql, ignored.sql), "dynamic")
    sql = call("tide_prefix_keys", bag.sql, text_literal(prefix)) if prefix else bag.sql
    chosen: list[tuple[Column, exp.Expr | None]] = [(c, None) for c in relation.columns if c.name != name]
    if schema:
        for wanted, kind in schema:
            held_by = next((c for c, _ in chosen if c.name == wanted), None)
            if wanted == "*" or (held_by is not None and conflict != "replace_source"):
                continue
            chosen = [entry for entry in chosen if entry[0] is not held_by]
            read = Value(call("tide_key", sql, text_literal(wanted)), "dynamic")
            key = fresh_key(wanted, [c.key for c, _ in chosen])
            chosen.append((Column(wanted, kind, key), convert(read, kind).sql))
        return rebuilt(relation, chosen)
    held = relation.by_name.get(name)
    column = Column(name, "dynamic", held.key if held else fresh_key(name, [c.key for c, _ in chosen]), conflict)
    made = b.steps.closed(rebuilt(replace(relation, bag=None), [*chosen, (column, sql)]))
    return replace(made, bag=column)


def _options(b: Binder, plugin: syntax.Call, names: Sequence[str], place: Place) -> dict[str, Any]:
    """Return the options of a plugin after its first argument, which stand in order or by name."""
    found: dict[str, Any] = {}
    for at, node in enumerate(plugin.arguments[1:]):
        name = node.names[0] if isinstance(node, syntax.Named) else names[at] if at < len(names) else ""
        if name not in names:
            raise b.error(node.at, f"{plugin.name} has these options: {', '.join(names)}", kind="arity")
        given = node.value if isinstance(node, syntax.Named) else node
        found[name] = b.constant(given, b.scope(None, place), name)
    return found


def _pivot(b: Binder, relation: Relation, plugin: syntax.Call, schema: Any, place: Place) -> Relation:
    """Turn a column's values into columns: a bag of them for each group, unpacked at the end."""
    if not plugin.arguments or not isinstance(plugin.arguments[0], syntax.Name):
        raise b.error(plugin.at, "pivot needs a column")
    pivot = plugin.arguments[0]
    rest = plugin.arguments[1:]
    aggregate: syntax.Expression = syntax.Call("count", (), plugin.at)
    if rest and isinstance(rest[0], syntax.Call):
        aggregate, rest = rest[0], rest[1:]
    used = {pivot.name, *(a.name for a in getattr(aggregate, "arguments", ()) if isinstance(a, syntax.Name))}
    keys: Sequence[syntax.Expression] = rest or [
        syntax.Name(c.name, plugin.at) for c in relation.columns if c.name not in used
    ]
    by = (*keys, pivot)
    inner = _summarize(b, relation, [syntax.Named(("value",), aggregate, plugin.at)], by, place)
    label = unique("pivot", inner.by_name)
    packed = syntax.Call(
        "bag_pack", (syntax.Call("tostring", (pivot,), plugin.at), syntax.Name("value", plugin.at)), plugin.at
    )
    bag = syntax.Named((label,), syntax.Call("make_bag", (packed,), plugin.at), plugin.at)
    made = _summarize(b, inner, [bag], keys, place)
    opened = replace(made, bag=made.by_name[label])
    if not schema:
        return opened
    call_node = syntax.Call("bag_unpack", (syntax.Name(label, plugin.at),), plugin.at)
    return _bag_unpack(b, opened, call_node, schema, place)


def _summarize(b: Binder, relation: Relation, items: Sequence[Any], by: Sequence[Any], place: Place) -> Relation:
    parts: Mapping[str, Any] = {"by": tuple(by)} if by else {}
    return summarize(b, relation, syntax.Operator("summarize", tuple(items), items[0].at, parts, {}), place)


def _lookup(b: Binder, relation: Relation, plugin: syntax.Call, place: Place) -> Relation:
    """Join each row with the networks that its address lies in, and whose other keys equal its own."""
    if len(plugin.arguments) < 3:
        raise b.error(
            plugin.at, f"{plugin.name} needs a table, a column of addresses and a column of networks", kind="arity"
        )
    table, address, network, *rest = plugin.arguments
    left = b.steps.closed(relation)
    right = _other_alias(b, left, b.steps.closed(b.table(table, place)))
    here, there = b.scope(left, place), b.scope(right, place)
    one = b.expect_text(b.bind(address, here), here, plugin.at, "the address")
    other = b.expect_text(b.bind(network, there), there, plugin.at, "the network")
    conditions: list[exp.Expr] = [call(_IN_NETWORK[plugin.name], one.sql, other.sql)]
    unmatched = False
    for node in rest:
        given = node.value if isinstance(node, syntax.Named) else node
        if isinstance(given, syntax.Literal):
            unmatched = given.value is True
        else:
            conditions += [_equal(*pair) for pair in _pairs(b, given, left, right, place)]
    return _joined(b, left, right, exp.and_(*conditions), "left" if unmatched else "inner", set())
