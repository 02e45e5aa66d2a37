"""List KQL's scalar functions: what each takes, what it gives, and the portable function behind it.

``FUNCTIONS`` is the whole list, and the reference is generated from it; those of times and texts, and those that are
one line each, are in modules of their own. A rule gets bound arguments. It does not know columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.packed_functions import PACKED
from tidelake.query.kql.plain_functions import PLAIN
from tidelake.query.kql.text_functions import TEXTS
from tidelake.query.kql.time_functions import TIMES
from tidelake.query.kql.values import NUMERIC, TEXTUAL, Value, call, cast, literal, text, text_literal
from tidelake.query.kql.varied_functions import VARIED

# What has no meaning as another type.
_NEVER = {("datetime", "int"), ("bool", "datetime"), ("timespan", "datetime"), ("bool", "timespan"),
          ("datetime", "timespan"), ("datetime", "bool"), ("timespan", "bool"),
          *((kind, "guid") for kind in (*NUMERIC, "bool", "datetime", "timespan"))}  # fmt: skip


def _to(kind: str) -> Rule:
    def rule(args: Arguments) -> Value:
        if (args[0].type, kind) in _NEVER:
            raise args.error(f"{args.name} cannot use {args[0].type}: it has no meaning as {kind}", 0, kind="type")
        return convert(args[0], kind)

    return rule


def _to_dynamic(args: Arguments) -> Value:
    value = args[0]
    if value.type in TEXTUAL:
        return Value(call("tide_parse_json", value.sql), "dynamic")
    return convert(value, "dynamic")


def _is_empty(args: Arguments) -> Value:
    value = args[0]
    if value.type in ("dynamic", "vector"):
        value = convert(value, "string")
    if value.type in TEXTUAL:
        return Value(exp.EQ(this=text(value), expression=text_literal("")), "bool")
    return _is_null(args)


def _is_null(args: Arguments) -> Value:
    value = args[0]
    if value.type == "string":
        return literal(False, "bool")  # KQL's text is never null
    return Value(exp.Paren(this=exp.Is(this=value.sql, expression=exp.Null())), "bool")


def _negated(rule: Rule) -> Rule:
    return lambda args: Value(exp.Not(this=rule(args).sql), "bool")


def _not(args: Arguments) -> Value:
    value = args[0] if args[0].type == "bool" else convert(args[0], "bool")
    return (
        literal(not value.constant, "bool")
        if value.constant in (True, False)
        else Value(exp.Not(this=exp.Paren(this=value.sql)), "bool")
    )


def unify(values: Sequence[Value], args: Arguments) -> tuple[list[Value], str]:
    """Return branches as one type, as ``iff`` and ``case`` need."""
    kinds = {value.type for value in values if not value.is_null} or {values[0].type}
    if len(kinds) == 1:
        kind = kinds.pop()
    elif kinds <= {*NUMERIC, "bool"}:
        kind = "real" if kinds & {"real", "decimal"} else "long"
    elif kinds <= {*TEXTUAL}:
        kind = "string"
    elif "dynamic" in kinds or "vector" in kinds:
        kind = "dynamic"
    elif "string" in kinds:
        kind = "string"
    else:
        raise args.error(f"the branches of {args.name} have different types: {', '.join(sorted(kinds))}", kind="type")
    return [literal(None, kind) if value.is_null else convert(value, kind) for value in values], kind


def _condition(args: Arguments, index: int) -> exp.Expr:
    value = args[index]
    if value.type not in ("bool", "dynamic", *NUMERIC):
        raise args.error(f"a condition of {args.name} must be bool, this is {value.type}", index, kind="type")
    return value.sql if value.type == "bool" else convert(value, "bool").sql


def _iff(args: Arguments) -> Value:
    (yes, no), kind = unify(args.values[1:], args)
    branch = exp.If(this=_condition(args, 0), true=yes.sql)
    return Value(exp.Case(ifs=[branch], default=no.sql), kind)


def _case(args: Arguments) -> Value:
    if len(args) % 2 == 0:
        raise args.error("case needs pairs of condition and value, and a last value")
    results, kind = unify([*args.values[1::2], args.values[-1]], args)
    ifs = [exp.If(this=_condition(args, 2 * at), true=result.sql) for at, result in enumerate(results[:-1])]
    return Value(exp.Case(ifs=ifs, default=results[-1].sql), kind)


def _coalesce(args: Arguments) -> Value:
    values, kind = unify(args.values, args)
    if kind in TEXTUAL:  # an empty text counts as missing
        parts: list[exp.Expr] = [exp.Nullif(this=value.sql, expression=text_literal("")) for value in values]
        return Value(exp.Coalesce(this=parts[0], expressions=[*parts[1:], text_literal("")]), kind)
    return Value(exp.Coalesce(this=values[0].sql, expressions=[value.sql for value in values[1:]]), kind)


def _extreme(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        values, kind = unify(args.values, args)
        return Value(call(target, *(value.sql for value in values)), kind)

    return rule


def _round(args: Arguments) -> Value:
    if args[0].type in ("int", "long") and len(args) == 1:
        return args[0]
    digits = args.as_type(1, "long").sql if len(args) > 1 else exp.Literal.number(0)
    return Value(call("tide_round", args.as_type(0, "real").sql, digits), "real")


def _keeps_type(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        value = convert(args[0], "real") if args[0].type == "dynamic" else args[0]
        if value.type not in (*NUMERIC, "timespan"):
            raise args.error(f"{args.name} needs a number, this is {value.type}", 0, kind="type")
        if value.type == "int":
            value = Value(cast(value.sql, "long"), "long")
        return Value(call(target, value.sql), value.type)

    return rule


def _sign(args: Arguments) -> Value:
    return Value(call("tide_sign", args.as_type(0, "real").sql), "real")


def _ceiling(args: Arguments) -> Value:
    if args[0].type in ("int", "long"):
        return args[0]
    return Value(call("tide_ceiling", args.as_type(0, "real").sql), "real")


def _bag_has_key(args: Arguments) -> Value:
    bag, key = args.as_type(0, "dynamic"), args.as_type(1, "text")
    if isinstance(key.constant, str) and key.constant.startswith("$."):
        found = call("tide_get", bag.sql, text_literal(key.constant[2:]))
        return Value(exp.Not(this=exp.Is(this=found, expression=exp.Null())), "bool")
    return Value(call("tide_bag_has_key", bag.sql, key.sql), "bool")


def _bag_remove_keys(args: Arguments) -> Value:
    bag, keys = args.as_type(0, "dynamic"), args.as_type(1, "dynamic")
    nested = isinstance(keys.constant, list) and any(str(key).startswith("$.") for key in keys.constant)
    if nested:
        return Value(call("tide_bag_without", call("tide_to_json", bag.sql), call("tide_to_json", keys.sql)), "dynamic")
    return Value(call("tide_bag_remove_keys", bag.sql, keys.sql), "dynamic")


def _gettype(args: Arguments) -> Value:
    """Return the type as it is known, and of a dynamic value that of what it holds."""
    if args[0].type in ("dynamic", "vector"):
        return Value(call("tide_type_of", args.as_type(0, "dynamic").sql), "string")
    return literal(args[0].type, "string")


def _pack(args: Arguments) -> Value:
    if len(args) % 2:
        raise args.error(f"{args.name} needs pairs of key and value")
    parts: list[exp.Expr] = []
    for index in range(0, len(args), 2):
        parts += [text(args.as_type(index, "text")), convert(args[index + 1], "dynamic").sql]
    return Value(call("tide_pack", *parts), "dynamic")


def _pack_array(args: Arguments) -> Value:
    if all(value.is_constant and value.type in ("string", "long", "int", "real", "bool") for value in args.values):
        return literal([value.constant for value in args.values], "dynamic")
    return Value(call("tide_pack_array", *(convert(value, "dynamic").sql for value in args.values)), "dynamic")


def _set_has_element(args: Arguments) -> Value:
    sought = convert(args[1], "string") if args[1].type in NUMERIC else args.as_type(1, "text")
    return Value(call("tide_in_array", text(sought), args.as_type(0, "dynamic").sql), "bool")


def _tohex(args: Arguments) -> Value:
    """Write a number's digits: one of 32 bits below zero has eight."""
    number, rest = args.as_type(0, "long"), [args.as_type(at, "long").sql for at in range(1, len(args))]
    if args[0].type == "int":
        number = Value(call("tide_bit_and", cast(args[0].sql, "long"), exp.Literal.number(0xFFFFFFFF)), "long")
    return Value(call("tide_to_hex", number.sql, *rest), "string")


def _array_iff(args: Arguments) -> Value:
    sides = [call("tide_to_json", convert(value, "dynamic").sql) for value in args.values]
    return Value(call("tide_array_iff", *sides), "dynamic")


def _range(args: Arguments) -> Value:
    values = list(args.values) + ([literal(1, "long")] if len(args) == 2 else [])
    if values[0].type == "datetime":
        parts = [args.as_type(0, "datetime").sql, args.as_type(1, "datetime").sql, values[2].sql]
        return Value(call("tide_range_datetime", *parts), "dynamic")
    if any(value.type in ("real", "decimal") for value in values):
        return Value(call("tide_range_real", *(convert(value, "real").sql for value in values)), "dynamic")
    if values[0].type == "timespan":
        return Value(call("tide_range_timespan", *(value.sql for value in values)), "dynamic")
    return Value(call("tide_range_long", *(convert(value, "long").sql for value in values)), "dynamic")


def _around(args: Arguments) -> Value:
    value, center, delta = args.values
    if value.type == "datetime":
        low = call("tide_add_ticks", center.sql, exp.Neg(this=exp.Paren(this=delta.sql)))
        high: exp.Expr = call("tide_add_ticks", center.sql, delta.sql)
        bounds = [exp.GTE(this=value.sql, expression=low), exp.LTE(this=value.sql, expression=high)]
    else:
        low_number = exp.Sub(this=center.sql, expression=delta.sql)
        high = exp.Add(this=center.sql, expression=delta.sql)
        bounds = [exp.GTE(this=value.sql, expression=low_number), exp.LTE(this=value.sql, expression=high)]
    return Value(exp.Paren(this=exp.and_(*bounds)), "bool")


def _assert(args: Arguments) -> Value:
    """Stop the query where a condition that is known beforehand does not hold."""
    if args.constant(0, "the condition") is not True:
        raise args.error(f"assertion failed: {args.constant(1, 'the message')}", kind="assertion")
    return literal(True, "bool")


def _rand(args: Arguments) -> Value:
    found = call("tide_rand")
    if not len(args):
        return Value(found, "real")
    return Value(exp.Floor(this=exp.Mul(this=found, expression=args.as_type(0, "real").sql)), "real")


def _pi(args: Arguments) -> Value:
    return literal(3.141592653589793, "real")


def _constant_text(value: str) -> Rule:
    return lambda args: literal(value, "string")


_RULES: dict[str, tuple[int, int, Rule, str]] = {
    "tostring": (1, 1, _to("string"), "string"),
    "tolong": (1, 1, _to("long"), "long"),
    "toint": (1, 1, _to("int"), "int"),
    "toreal": (1, 1, _to("real"), "real"),
    "todouble": (1, 1, _to("real"), "real"),
    "todecimal": (1, 1, _to("decimal"), "decimal"),
    "tobool": (1, 1, _to("bool"), "bool"),
    "toboolean": (1, 1, _to("bool"), "bool"),
    "todatetime": (1, 1, _to("datetime"), "datetime"),
    "totimespan": (1, 1, _to("timespan"), "timespan"),
    "totime": (1, 1, _to("timespan"), "timespan"),
    "toguid": (1, 1, _to("guid"), "guid"),
    "todynamic": (1, 1, _to_dynamic, "dynamic"),
    "toobject": (1, 1, _to_dynamic, "dynamic"),
    "parse_json": (1, 1, _to_dynamic, "dynamic"),
    "parsejson": (1, 1, _to_dynamic, "dynamic"),
    "isempty": (1, 1, _is_empty, "bool"),
    "isnotempty": (1, 1, _negated(_is_empty), "bool"),
    "notempty": (1, 1, _negated(_is_empty), "bool"),
    "isnull": (1, 1, _is_null, "bool"),
    "isnotnull": (1, 1, _negated(_is_null), "bool"),
    "notnull": (1, 1, _negated(_is_null), "bool"),
    "not": (1, 1, _not, "bool"),
    "iff": (3, 3, _iff, "of its branches"),
    "iif": (3, 3, _iff, "of its branches"),
    "case": (3, 10_000, _case, "of its branches"),
    "coalesce": (1, 64, _coalesce, "of its arguments"),
    "max_of": (1, 64, _extreme("tide_max_of"), "of its arguments"),
    "min_of": (1, 64, _extreme("tide_min_of"), "of its arguments"),
    "round": (1, 2, _round, "real"),
    "abs": (1, 1, _keeps_type("tide_abs"), "of its argument"),
    "sign": (1, 1, _sign, "real"),
    "ceiling": (1, 1, _ceiling, "of its argument"),
    "gettype": (1, 1, _gettype, "string"),
    "bag_has_key": (2, 2, _bag_has_key, "bool"),
    "bag_remove_keys": (2, 2, _bag_remove_keys, "dynamic"),
    "pack": (2, 254, _pack, "dynamic"),
    "bag_pack": (2, 254, _pack, "dynamic"),
    "pack_dictionary": (2, 254, _pack, "dynamic"),
    "pack_array": (1, 254, _pack_array, "dynamic"),
    "set_has_element": (2, 2, _set_has_element, "bool"),
    "tohex": (1, 2, _tohex, "string"),
    "array_iff": (3, 3, _array_iff, "dynamic"),
    "array_iif": (3, 3, _array_iff, "dynamic"),
    "range": (2, 3, _range, "dynamic"),
    "rand": (0, 1, _rand, "real"),
    "assert": (2, 2, _assert, "bool"),
    "around": (3, 3, _around, "bool"),
    "pi": (0, 0, _pi, "real"),
    "current_database": (0, 0, _constant_text("default"), "string"),
    "current_cluster_endpoint": (0, 0, _constant_text(""), "string"),
}

FUNCTIONS: Mapping[str, ScalarFunction] = {
    **PLAIN,
    **PACKED,
    **VARIED,
    **TIMES,
    **TEXTS,
    **{name: ScalarFunction(name, *entry) for name, entry in _RULES.items()},
}

# A result's name comes from the first argument of these, when nothing else names it.
NAMED_BY_ARGUMENT = frozenset(
    ("split", "tostring", "tohex", "todynamic", "toobject", "tolong", "toint", "toreal", "todouble", "todatetime",
     "totimespan", "totime", "tobool", "toboolean", "todecimal", "toguid", "parse_csv", "parsejson", "parse_json",
     "parse_xml", "format_datetime", "format_timespan", "startofday", "bin", "floor", "bin_at", "binary_and",
     "binary_or", "binary_xor", "binary_not", "binary_shift_right", "binary_shift_left", "series_fill_backward",
     "series_fill_forward", "series_fill_const", "series_fill_linear", "round", "ceiling", "pow", "sqrt", "log",
     "log2", "log10", "exp", "exp2", "exp10", "cos", "sin", "tan", "acos", "asin", "atan", "atan2", "abs",
     "take_anyif", "take_any", "any", "format_bytes",)
)  # fmt: skip
