"""List KQL's aggregates: what each takes, what it gives, and the SQL behind it.

``AGGREGATES`` is the whole list, and the reference is generated from it. Nulls are left out, as KQL does; text is never
null. ``dcount`` is exact. Sets are sorted, so that both engines give the same. It does not know groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.values import NUMERIC, TEXTUAL, Value, call, cast, coalesced, literal, text

MAX_KEPT = 2**31 - 1  # values of a set that stands for a sketch: all of them

Rule = Callable[[Arguments], Value]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate: how many arguments it takes, its rule, and what the name of its result begins with."""

    name: str
    least: int
    most: int
    rule: Rule
    result: str
    prefix: str


def _when(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _conditional(rule: Rule) -> Rule:
    """Make ``sumif`` of ``sum``: the last but one argument says which rows count."""

    def conditional(args: Arguments) -> Value:
        condition = args.as_type(1, "bool").sql
        value = args[0]
        sql = text(value) if value.type in TEXTUAL else value.sql
        chosen = Value(_when(condition, sql), "dynamic" if value.type == "vector" else value.type)
        rest = args.values[2:]
        places = (args.places[0], *args.places[2:])
        return rule(Arguments(args.name, (_Chosen.of(chosen), *rest), args.scope, args.at, places))

    return conditional


class _Chosen(Value):
    """A value that is null where its row does not count, even if it is text."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Value) -> _Chosen:
        return cls(value.sql, value.type, value.constant)


def _kept(value: Value) -> exp.Expr:
    """Return what an aggregate counts: text with null as empty, unless null says that the row does not count."""
    if value.type in TEXTUAL and not isinstance(value, _Chosen):
        return text(value)
    return convert(value, "string").sql if value.type in ("dynamic", "vector") else value.sql


def _count(args: Arguments) -> Value:
    return _countif(args) if len(args) else Value(exp.Count(this=exp.Star()), "long")


def _countif(args: Arguments) -> Value:
    condition = args.as_type(0, "bool").sql
    return Value(exp.Count(this=_when(condition, exp.Literal.number(1))), "long")


def _dcount(args: Arguments) -> Value:
    return Value(exp.Count(this=exp.Distinct(expressions=[_kept(args[0])])), "long")


def _sum(args: Arguments) -> Value:
    value = _number(args)
    kind = "real" if value.type in ("real", "decimal") else "timespan" if value.type == "timespan" else "long"
    summed = exp.Coalesce(this=exp.Sum(this=value.sql), expressions=[exp.Literal.number(0)])
    return Value(cast(summed, "real" if kind == "real" else "long"), kind)


def _number(args: Arguments) -> Value:
    value = args[0]
    if value.type == "dynamic":
        return convert(value, "real")
    if value.type == "bool":
        return convert(value, "long")
    if value.type not in (*NUMERIC, "timespan"):
        raise args.error(f"{args.name} needs a number, this is {value.type}", 0, kind="type")
    return value


def _avg(args: Arguments) -> Value:
    if args[0].type == "datetime":
        micros = exp.Avg(this=call("tide_to_micros", args[0].sql))
        return Value(call("tide_from_unix_micros", cast(micros, "long")), "datetime")
    value = _number(args)
    averaged = call("tide_mean", value.sql) if value.type == "decimal" else exp.Avg(this=value.sql)
    if value.type == "timespan":
        return Value(cast(exp.Round(this=averaged), "long"), "timespan")
    nothing = exp.cast(exp.Literal.string("NaN"), "double")  # of no values it is no number, as nothing by nothing is
    return Value(exp.Coalesce(this=cast(averaged, "real"), expressions=[nothing]), "real")


def _extreme(kind: type[exp.AggFunc]) -> Rule:
    def rule(args: Arguments) -> Value:
        value = args[0]
        if value.type in ("dynamic", "vector"):
            value = convert(value, "string")
        return Value(kind(this=value.sql), value.type)

    return rule


def _deviation(target: str) -> Rule:
    """Measure how far values lie apart: of one or none, not at all."""

    def rule(args: Arguments) -> Value:
        return Value(coalesced(call(target, cast(_number(args).sql, "real")), literal(0.0, "real").sql), "real")

    return rule


def _covariance(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        return Value(call(target, args.as_type(0, "real").sql, args.as_type(1, "real").sql), "real")

    return rule


def _conditional_pair(target: str) -> Rule:
    """Make ``covarianceif`` of ``covariance``: the last argument says which rows count."""

    def rule(args: Arguments) -> Value:
        condition = args.as_type(2, "bool").sql
        first, second = (_when(condition.copy(), args.as_type(at, "real").sql) for at in range(2))
        return Value(call(target, first, second), "real")

    return rule


def _make_list_with_nulls(args: Arguments) -> Value:
    return Value(call("tide_make_list_with_nulls", convert(args[0], "dynamic").sql), "dynamic")


def _percentile(args: Arguments) -> Value:
    value = args[0] if args[0].type in (*NUMERIC, "timespan", "datetime") else convert(args[0], "real")
    share = args.constant(1, "the percentile")
    if not isinstance(share, int | float) or not 0 <= share <= 100:
        raise args.error("a percentile lies between 0 and 100", 1)
    rank = exp.Literal.number(share / 100)
    if value.type == "datetime":
        micros = call("tide_percentile", call("tide_to_micros", value.sql), rank)
        return Value(call("tide_from_unix_micros", micros), "datetime")
    kind = "long" if value.type == "int" else value.type
    return Value(cast(call("tide_percentile", value.sql, rank), kind), kind)


def _weighted_percentile(args: Arguments) -> Value:
    """Return the least value that, with all below it, has a share of the weight."""
    value = args[0] if args[0].type in (*NUMERIC, "timespan") else convert(args[0], "real")
    share = args.constant(2, "the percentile")
    if not isinstance(share, int | float) or not 0 <= share <= 100:
        raise args.error("a percentile lies between 0 and 100", 2)
    plain = Value(value.sql, "long") if value.type == "timespan" else value
    pair = call("tide_pack_array", *(convert(each, "dynamic").sql for each in (plain, args.as_type(1, "long"))))
    found = call("tide_percentile_weighted", call("tide_make_list_whole", pair), text(literal(str(share), "string")))
    return Value(cast(found, "long" if value.type == "timespan" else value.type), value.type)


def _limit(args: Arguments) -> list[exp.Expr]:
    return [args.as_type(1, "long").sql] if len(args) > 1 else []


def _make_set(args: Arguments) -> Value:
    return _collected("tide_make_set", args)


def _make_list(args: Arguments) -> Value:
    return _collected("tide_make_list", args)


def _collected(target: str, args: Arguments) -> Value:
    value = args[0]
    if value.type in ("dynamic", "vector"):
        suffix, sql = "_of_dynamic", convert(value, "dynamic").sql
    elif value.type == "timespan":
        suffix, sql = "", convert(value, "string").sql
    else:
        suffix, sql = ("_of_datetime" if value.type == "datetime" else ""), _kept(value)
    order = list(args.scope.windows or ()) if target == "tide_make_list" else []
    limit = _limit(args)
    if order:
        return Value(call(f"{target}_ordered{suffix}", sql, *(limit or [exp.Null()]), *order), "dynamic")
    return Value(call(target + suffix, sql, *limit), "dynamic")


def _make_bag(args: Arguments) -> Value:
    return Value(call("tide_make_bag", args.as_type(0, "dynamic").sql), "dynamic")


def _hll(args: Arguments) -> Value:
    """Keep the distinct values themselves, as texts: counts of them are exact."""
    value = convert(args[0], "string")
    held = _Chosen(value.sql, "string") if isinstance(args[0], _Chosen) or args[0].type not in TEXTUAL else value
    return Value(call("tide_make_set", _kept(held), exp.Literal.number(MAX_KEPT)), "dynamic")


def _hll_merge(args: Arguments) -> Value:
    return Value(
        call("tide_make_set_of_dynamic", args.as_type(0, "dynamic").sql, exp.Literal.number(MAX_KEPT)), "dynamic"
    )


def _tdigest(args: Arguments) -> Value:
    """Keep the values themselves: percentiles of them are exact."""
    value = _number(args)
    if value.type == "timespan":
        raise args.error("tdigest keeps numbers: use tolong(…)", 0, kind="type")
    return Value(call("tide_make_list", value.sql, exp.Literal.number(MAX_KEPT)), "dynamic")


def _merge_tdigest(args: Arguments) -> Value:
    return Value(
        call("tide_make_list_of_dynamic", args.as_type(0, "dynamic").sql, exp.Literal.number(MAX_KEPT)), "dynamic"
    )


def _build_schema(args: Arguments) -> Value:
    held = call("tide_to_json", call("tide_make_list_whole", args.as_type(0, "dynamic").sql))
    return Value(call("tide_build_schema", held), "dynamic")


def _any(args: Arguments) -> Value:
    return Value(call("tide_any", args[0].sql), args[0].type)


def _bits(target: str) -> Rule:
    return lambda args: Value(call(target, args.as_type(0, "long").sql), "long")


_ENTRIES: dict[str, tuple[int, int, Rule, str, str]] = {
    "count": (0, 1, _count, "long", "count"), "cnt": (0, 0, _count, "long", "cnt"),
    "countif": (1, 1, _countif, "long", "countif"), "dcount": (1, 2, _dcount, "long", "dcount"),
    "dcountif": (2, 3, _conditional(_dcount), "long", "dcountif"),
    "count_distinct": (1, 1, _dcount, "long", "count_distinct"),
    "count_distinctif": (2, 2, _conditional(_dcount), "long", "count_distinctif"),
    "sum": (1, 1, _sum, "of its argument", "sum"), "sumif": (2, 2, _conditional(_sum), "of its argument", "sumif"),
    "avg": (1, 1, _avg, "real", "avg"), "avgif": (2, 2, _conditional(_avg), "real", "avgif"),
    "min": (1, 1, _extreme(exp.Min), "of its argument", "min"),
    "minif": (2, 2, _conditional(_extreme(exp.Min)), "of its argument", "minif"),
    "max": (1, 1, _extreme(exp.Max), "of its argument", "max"),
    "maxif": (2, 2, _conditional(_extreme(exp.Max)), "of its argument", "maxif"),
    "stdev": (1, 1, _deviation("tide_stdev"), "real", "stdev"),
    "stdevif": (2, 2, _conditional(_deviation("tide_stdev")), "real", "stdevif"),
    "stdevp": (1, 1, _deviation("tide_stdevp"), "real", "stdevp"),
    "variance": (1, 1, _deviation("tide_variance"), "real", "variance"),
    "varianceif": (2, 2, _conditional(_deviation("tide_variance")), "real", "varianceif"),
    "variancep": (1, 1, _deviation("tide_variancep"), "real", "variancep"),
    "variancepif": (2, 2, _conditional(_deviation("tide_variancep")), "real", "variancepif"),
    "stdevpif": (2, 2, _conditional(_deviation("tide_stdevp")), "real", "stdevpif"),
    "covariance": (2, 2, _covariance("tide_covariance"), "real", "covariance"),
    "covariancep": (2, 2, _covariance("tide_covariancep"), "real", "covariancep"),
    "covarianceif": (3, 3, _conditional_pair("tide_covariance"), "real", "covarianceif"),
    "covariancepif": (3, 3, _conditional_pair("tide_covariancep"), "real", "covariancepif"),
    "make_list_with_nulls": (1, 1, _make_list_with_nulls, "dynamic", "list"),
    "percentile": (2, 2, _percentile, "of its argument", "percentile"),
    "percentilew": (3, 3, _weighted_percentile, "of its argument", "percentile"),
    "make_set": (1, 2, _make_set, "dynamic", "set"), "makeset": (1, 2, _make_set, "dynamic", "set"),
    "make_set_if": (2, 3, _conditional(_make_set), "dynamic", "set"),
    "make_list": (1, 2, _make_list, "dynamic", "list"), "makelist": (1, 2, _make_list, "dynamic", "list"),
    "make_list_if": (2, 3, _conditional(_make_list), "dynamic", "list"),
    "make_bag": (1, 2, _make_bag, "dynamic", "bag"), "make_dictionary": (1, 2, _make_bag, "dynamic", "dictionary"),
    "make_bag_if": (2, 3, _conditional(_make_bag), "dynamic", "bag"),
    "hll": (1, 2, _hll, "dynamic", "hll"), "hll_if": (2, 3, _conditional(_hll), "dynamic", "hll"),
    "hll_merge": (1, 1, _hll_merge, "dynamic", "hll_merge"), "tdigest": (1, 1, _tdigest, "dynamic", "tdigest"),
    "merge_tdigest": (1, 1, _merge_tdigest, "dynamic", "merge_tdigest"),
    "tdigest_merge": (1, 1, _merge_tdigest, "dynamic", "tdigest_merge"),
    "buildschema": (1, 1, _build_schema, "dynamic", "schema"),
    "take_any": (1, 1, _any, "of its argument", ""), "any": (1, 1, _any, "of its argument", "any"),
    "anyif": (2, 2, _conditional(_any), "of its argument", "anyif"),
    "take_anyif": (2, 2, _conditional(_any), "of its argument", ""),
    "binary_all_and": (1, 1, _bits("tide_all_and"), "long", ""),
    "binary_all_or": (1, 1, _bits("tide_all_or"), "long", ""),
    "binary_all_xor": (1, 1, _bits("tide_all_xor"), "long", ""),
}  # fmt: skip

AGGREGATES: Mapping[str, Aggregate] = {name: Aggregate(name, *entry) for name, entry in _ENTRIES.items()}

EXTREMES = {"arg_max": "max", "argmax": "max", "arg_min": "min", "argmin": "min"}

# Aggregates that give several columns; summarize knows them by name.
SEVERAL = {
    "arg_max": "the row with the greatest value", "arg_min": "the row with the least value",
    "argmax": "arg_max, under its old name", "argmin": "arg_min, under its old name",
    "percentiles": "several percentiles", "percentiles_array": "several percentiles, as an array",
    "percentilesw": "several percentiles of weighted values", "percentilesw_array": "the same, as an array",
    "take_any": "any row's columns", "any": "take_any, under its old name",
}  # fmt: skip
