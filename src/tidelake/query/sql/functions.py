"""Declare the functions of Spark that DuckDB lacks, or that answer otherwise there.

A call of one of them reaches the tree under a name of ours (``tokens``) with its arguments as they were given.
Spark is given it back by its own name. Operations around a call know its type by what it is declared to return. It does
not write aggregates of several parts: see ``meaning``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.decimals import digits_of, is_decimal, widest
from tidelake.query.functions.declaration import OURS, Function, of_spark
from tidelake.query.functions.templates import Writer, named
from tidelake.query.sql.formats import from_json, to_char, to_number, to_text_of_time
from tidelake.query.sql.nested import NESTED


def _try(sign: str) -> Writer:
    """Write an operation that is null where it would fail, with texts as the numbers they are."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        left, right = (_number(node, text) for node, text in zip(nodes, texts, strict=True))
        if all(map(kind_is_interval, nodes)):
            return _within_range(f"TRY(({left}) {sign} ({right}))")
        return f"TRY(({left}) {sign} ({right}))"

    return write


def _within_range(interval: str) -> str:
    """Write an interval, or null where it is longer than 64 bits of microseconds, as Spark has it."""
    micros = (
        "(date_part('day', tide_v)::HUGEINT * 86400000000 + date_part('hour', tide_v)::HUGEINT * 3600000000"
        " + date_part('minute', tide_v) * 60000000 + date_part('microsecond', tide_v))"
    )
    kept = f"CASE WHEN {micros} BETWEEN {-(2**63)} AND {2**63 - 1} THEN tide_v END"
    return named(interval, kept, "duckdb")


def _number(node: exp.Expr, text: str) -> str:
    is_text = node.type is not None and node.type.this in exp.DataType.TEXT_TYPES
    return f"TRY_CAST({text} AS BIGINT)" if is_text else text


def _try_sum(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    kind = nodes[0].type.this if nodes[0].type is not None else None
    if kind_is_interval(nodes[0]):
        raise QueryError("try_sum takes numbers in process: ask with engine='spark'", kind="unsupported")
    written = f"sum({texts[0]})"
    return f"TRY_CAST({written} AS BIGINT)" if kind in exp.DataType.INTEGER_TYPES else written


def _format_string(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"tide_format_string(CAST({texts[0]} AS VARCHAR), CAST(json_array({', '.join(texts[1:])}) AS VARCHAR), NULL)"


def _percentile(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if len(texts) != 2:
        raise QueryError("percentile takes a value and a share in process, and no count", kind="unsupported")
    return f"quantile_cont({', '.join(texts)})"


def _split(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if len(texts) < 3:
        return f"str_split_regex({texts[0]}, {texts[1]})"
    return f"from_json(tide_split_text({', '.join(f'CAST({text} AS VARCHAR)' for text in texts)}), '[\"VARCHAR\"]')"


def _elt(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"CASE WHEN ({texts[0]}) >= 1 THEN list_value({', '.join(texts[1:])})[CAST({texts[0]} AS BIGINT)] END"


def _padded(side: str) -> Writer:
    """Write a padding; bytes are padded as the digits they are written with, by zeros."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        if _is_binary(nodes[0]) and (len(texts) < 3 or _is_binary(nodes[2])):
            if len(texts) > 2 and _is_empty(nodes[2]):
                return f"unhex(left(hex({texts[0]}), CAST(greatest({texts[1]}, 0) AS INTEGER) * 2))"
            pad = f"hex({texts[2]})" if len(texts) > 2 else "'00'"
            return f"unhex({side}(hex({texts[0]}), CAST(greatest({texts[1]}, 0) AS INTEGER) * 2, {pad}))"
        subject = f"decode({texts[0]})" if _is_binary(nodes[0]) else f"CAST({texts[0]} AS VARCHAR)"
        pad = texts[2] if len(texts) > 2 else "' '"
        length = f"greatest(TRY_CAST({texts[1]} AS INTEGER), 0 * TRY_CAST({texts[1]} AS INTEGER))"
        padded = f"{side}({subject}, {length}, nullif({pad}, ''))"
        return f"CASE WHEN {pad} = '' THEN left({subject}, {length}) ELSE {padded} END"

    return write


def _is_empty(node: exp.Expr) -> bool:
    return isinstance(node, exp.Unhex | exp.HexString) and not node.name


def _is_binary(node: exp.Expr) -> bool:
    if isinstance(node, exp.HexString | exp.Unhex):
        return True
    return node.type is not None and node.type.this in (exp.DType.BINARY, exp.DType.VARBINARY)


def _plain(sign: str) -> Writer:
    """Write a number with a sign before it; text is the number it stands for, or null."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        (text,) = texts
        is_text = nodes[0].type is not None and nodes[0].type.this in exp.DataType.TEXT_TYPES
        return f"({sign}TRY_CAST({text} AS DOUBLE))" if is_text else f"({sign}({text}))"

    return write


def _shift_left(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write a shift within the bits of its type: what goes beyond is lost."""
    is_long = nodes[0].type is not None and nodes[0].type.this is exp.DType.BIGINT
    bits = 64 if is_long else 32
    turned = f"CAST({texts[0]} AS HUGEINT) * CAST(pow(2, ({texts[1]}) & {bits - 1}) AS HUGEINT)"
    half = 2 ** (bits - 1)
    within = f"((({turned}) % {2**bits} + {2**bits + half}) % {2**bits} - {half})"
    return f"CAST({within} AS {'BIGINT' if is_long else 'INTEGER'})"


def _uniform(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write a number by chance between two, of the type that holds both."""
    drawn = f"(({texts[0]}) + random() * (({texts[1]}) - ({texts[0]})))"
    digits = [digits_of(each) for each in nodes[:2]]
    if None in digits:
        return drawn
    precision, scale = widest(each for each in digits if each is not None)
    if any(map(is_decimal, nodes[:2])):
        return f"CAST({drawn} AS DECIMAL({precision}, {scale}))"
    is_long = any(each.type is not None and each.type.this is exp.DType.BIGINT for each in nodes[:2])
    return f"CAST(floor({drawn}) AS {'BIGINT' if is_long else 'INTEGER'})"


def _try_divide(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write a quotient of reals: one of decimals is no call any more."""
    if any(kind_is_interval(each) for each in nodes):
        raise QueryError("try_divide takes numbers in process: ask with engine='spark'", kind="unsupported")
    return f"(TRY_CAST({texts[0]} AS DOUBLE) / nullif(TRY_CAST({texts[1]} AS DOUBLE), 0))"


def kind_is_interval(node: exp.Expr) -> bool:
    """Whether an expression is an interval."""
    if isinstance(node, exp.Interval):
        return True
    return node.type is not None and (isinstance(node.type.this, exp.Interval) or node.type.this is exp.DType.INTERVAL)


def _make_timestamp(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write a time out of its parts: six numbers, or a date and a time of day, and perhaps a zone."""
    if len(texts) < 6:
        zone = texts[2] if len(texts) > 2 else "'UTC'"
        return f"TRY((CAST({texts[0]} AS DATE) + CAST({texts[1]} AS TIME)) AT TIME ZONE {zone})"
    zone = texts[6] if len(texts) > 6 else "'UTC'"
    parts = ", ".join(f"CAST({text} AS BIGINT)" for text in texts[:5])
    return f"TRY(make_timestamp({parts}, CAST({texts[5]} AS DOUBLE)) AT TIME ZONE {zone})"


FUNCTIONS: tuple[Function, ...] = (
    of_spark("bround", returns="same", duckdb="round_even({0}, {1|0})", takes="number"),
    of_spark("rint", returns="real", duckdb="round_even(CAST({0} AS DOUBLE), 0)", takes="number"),
    of_spark(
        "hypot",
        returns="real",
        duckdb="sqrt(CAST({0} AS DOUBLE) * ({0}) + CAST({1} AS DOUBLE) * ({1}))",
        takes="number",
    ),
    of_spark("expm1", returns="real", duckdb="(exp({0}) - 1)", takes="number"),
    of_spark("log1p", returns="real", duckdb="CASE WHEN ({0}) > -1 THEN ln(1 + ({0})) END", takes="number"),
    of_spark("csc", returns="real", duckdb="(1 / nullif(sin({0}), 0))", takes="number"),
    of_spark("sec", returns="real", duckdb="(1 / cos({0}))", takes="number"),
    of_spark(
        "cot",
        returns="real",
        duckdb="CASE WHEN ({0}) = 0 THEN CAST('Infinity' AS DOUBLE) ELSE 1 / tan({0}) END",
        takes="number",
    ),
    of_spark("e", returns="real", duckdb="exp(CAST(1 AS DOUBLE))"),
    of_spark(
        "factorial",
        returns="long",
        duckdb="CASE WHEN ({0}) BETWEEN 0 AND 20 THEN CAST(factorial(CAST({0} AS INTEGER)) AS BIGINT) END",
        takes="number",
    ),
    *(
        of_spark(
            name,
            returns="real",
            duckdb="CASE WHEN isnan(CAST({1} AS DOUBLE)) OR (abs(CAST({0} AS DOUBLE)) = 1 AND isinf(CAST({1} AS "
            "DOUBLE))) THEN CAST('NaN' AS DOUBLE) ELSE pow(CAST({0} AS DOUBLE), CAST({1} AS DOUBLE)) END",
            takes="number",
        )
        for name in ("pow", "power")
    ),
    of_spark(
        "width_bucket",
        returns="long",
        duckdb="CASE WHEN trunc(CAST({3} AS DOUBLE)) < 1 OR CAST({1} AS DOUBLE) = CAST({2} AS DOUBLE) OR ({0}) "
        "IS NULL OR ({1}) IS NULL OR ({2}) IS NULL OR isnan(CAST({0} AS DOUBLE)) OR isnan(CAST({1} AS "
        "DOUBLE)) OR isnan(CAST({2} AS DOUBLE)) THEN NULL WHEN CAST({1} AS DOUBLE) < ({2}) THEN CASE "
        "WHEN CAST({0} AS DOUBLE) < ({1}) THEN 0 WHEN CAST({0} AS DOUBLE) >= ({2}) THEN CAST({3} AS "
        "BIGINT) + 1 ELSE CAST(floor(CAST({3} AS DOUBLE) * (CAST({0} AS DOUBLE) - CAST({1} AS DOUBLE)) / "
        "(CAST({2} AS DOUBLE) - CAST({1} AS DOUBLE))) AS BIGINT) + 1 END ELSE CASE WHEN CAST({0} AS "
        "DOUBLE) > ({1}) THEN 0 WHEN CAST({0} AS DOUBLE) <= ({2}) THEN CAST({3} AS BIGINT) + 1 ELSE "
        "CAST(floor(CAST({3} AS DOUBLE) * (CAST({1} AS DOUBLE) - CAST({0} AS DOUBLE)) / (CAST({1} AS "
        "DOUBLE) - CAST({2} AS DOUBLE))) AS BIGINT) + 1 END END",
        takes="number",
    ),
    of_spark("nullifzero", returns="same", duckdb="nullif({0}, 0)", takes="number"),
    of_spark("zeroifnull", returns="same", duckdb="coalesce({0}, 0)", takes="number"),
    of_spark("equal_null", returns="bool", duckdb="(({0}) IS NOT DISTINCT FROM ({1}))"),
    of_spark("bit_count", returns="int", duckdb="CAST(bit_count(CAST({0} AS BIGINT)) AS INTEGER)", takes="number"),
    *(
        of_spark(name, returns="int", duckdb="CAST((CAST({0} AS BIGINT) >> ({1})) & 1 AS INTEGER)", takes="number")
        for name in ("getbit", "bit_get")
    ),
    of_spark(
        "shiftrightunsigned",
        returns="same",
        duckdb="CASE WHEN ({0}) >= 0 THEN ({0}) >> ({1}) ELSE CAST((({0}) + CASE WHEN typeof({0}) = 'BIGINT' "
        "THEN 18446744073709551616 ELSE 4294967296 END) // pow(2, {1})::HUGEINT AS BIGINT) END",
        takes="number",
    ),
    of_spark("every", returns="bool", duckdb="bool_and({0})", takes="flag", aggregates=True),
    *(of_spark(name, returns="bool", duckdb="bool_or({0})", takes="flag", aggregates=True) for name in ("some", "any")),
    of_spark("std", returns="real", duckdb="stddev_samp({0})", takes="number", aggregates=True),
    of_spark("try_avg", returns="real", duckdb="avg({0})", takes="number", aggregates=True),
    of_spark("try_mod", returns="same", duckdb="(({0}) % nullif({1}, 0))", takes="number"),
    of_spark("try_element_at", duckdb="({0})[{1}]"),
    of_spark("try_make_timestamp", returns="time", duckdb="CAST(NULL AS TIMESTAMPTZ)"),
    of_spark(
        "left",
        returns="text",
        duckdb="CASE WHEN TRY_CAST({1} AS INTEGER) IS NOT NULL THEN left(CAST({0} AS VARCHAR), "
        "greatest(TRY_CAST({1} AS INTEGER), 0)) END",
        takes="text",
    ),
    of_spark(
        "right",
        returns="text",
        duckdb="CASE WHEN TRY_CAST({1} AS INTEGER) IS NOT NULL THEN right(CAST({0} AS VARCHAR), "
        "greatest(TRY_CAST({1} AS INTEGER), 0)) END",
        takes="text",
    ),
    of_spark("btrim", returns="text", duckdb="trim({0}, {1|' '})", takes="text"),
    of_spark("replace", returns="text", duckdb="replace({0}, {1}, {2|''})", takes="text"),
    of_spark("regexp", returns="bool", duckdb="regexp_matches({0}, {1})", takes="text"),
    of_spark(
        "regexp_substr",
        returns="text",
        duckdb="CASE WHEN regexp_matches({0}, {1}) THEN nullif(regexp_extract({0}, {1}), '') END",
        takes="text",
    ),
    of_spark(
        "substring_index",
        returns="text",
        duckdb="let[[{0}]][[CASE WHEN ({2}) >= 0 THEN array_to_string(list_slice(string_split(@, {1}), 1, {2}), "
        "{1}) ELSE array_to_string(list_slice(string_split(@, {1}), {2}, -1), {1}) END]]",
        takes="text",
    ),
    of_spark(
        "find_in_set",
        returns="int",
        duckdb="CAST(coalesce(CASE WHEN contains({0}, ',') THEN 0 WHEN ({0}) IS NOT NULL AND ({1}) IS NOT NULL "
        "THEN coalesce(list_position(string_split({1}, ','), {0}), 0) END) AS INTEGER)",
        takes="text",
    ),
    of_spark(
        "mask",
        returns="text",
        duckdb=r"regexp_replace(regexp_replace(regexp_replace({0}, '\p{Lu}', {1|'X'}, 'g'), '\p{Ll}', {2|'x'}, "
        r"'g'), '\d', {3|'n'}, 'g')",
        takes="text",
    ),
    of_spark(
        "split_part",
        returns="text",
        duckdb="CASE WHEN ({1}) = '' THEN CASE WHEN ({2}) IN (1, -1) THEN {0} ELSE '' END ELSE split_part({0}, "
        "{1}, {2}) END",
        takes="text",
    ),
    of_spark(
        "quote", returns="text", duckdb=r"('''' || replace(replace({0}, '\', '\\'), '''', '\''') || '''')", takes="text"
    ),
    of_spark(
        "json_array_length",
        returns="int",
        duckdb="CASE WHEN TRY(json_type({0})) = 'ARRAY' THEN CAST(TRY(json_array_length({0})) AS INTEGER) END",
        takes="shown",
    ),
    of_spark(
        "json_object_keys",
        duckdb="CASE WHEN TRY(json_type({0})) = 'OBJECT' THEN TRY(json_keys({0})) END",
        takes="shown",
    ),
    of_spark(
        "array_position",
        returns="long",
        duckdb="CASE WHEN ({0}) IS NOT NULL AND ({1}) IS NOT NULL THEN coalesce(list_position({0}, {1}), 0) END",
    ),
    of_spark(
        "array_remove",
        returns="same",
        duckdb="CASE WHEN ({1}) IS NOT NULL THEN list_filter({0}, lambda tide_x: tide_x IS DISTINCT FROM ({1})) END",
    ),
    of_spark(
        "array_distinct",
        returns="same",
        duckdb="let[[{0}]][[list_filter(@, lambda tide_x, tide_i: list_position(@, tide_x) = tide_i)]]",
    ),
    of_spark("flatten", duckdb="CASE WHEN list_count({0}) = len({0}) THEN flatten({0}) END"),
    of_spark(
        "array_contains",
        returns="bool",
        duckdb="CASE WHEN ({0}) IS NULL OR ({1}) IS NULL THEN NULL WHEN list_contains({0}, {1}) THEN TRUE WHEN "
        "list_count({0}) = len({0}) THEN FALSE END",
    ),
    of_spark(
        "url_encode",
        returns="text",
        duckdb="replace(replace(replace(url_encode(CAST({0} AS VARCHAR)), '%20', '+'), '~', '%7E'), '%2A', '*')",
    ),
    *(
        of_spark(name, returns="real", duckdb="CAST(sign(CAST({0} AS DOUBLE)) AS DOUBLE)", takes="number")
        for name in ("sign", "signum")
    ),
    of_spark(
        "from_utc_timestamp",
        returns="time",
        duckdb="make_timestamptz(tide_micros_to_zone(CAST(epoch_us({0}) AS VARCHAR), CAST({1} AS VARCHAR)))",
    ),
    of_spark(
        "to_utc_timestamp",
        returns="time",
        duckdb="make_timestamptz(tide_micros_from_zone(CAST(epoch_us({0}) AS VARCHAR), CAST({1} AS VARCHAR)))",
    ),
    of_spark(
        "randstr",
        returns="text",
        duckdb="array_to_string(list_transform(range(CAST({0} AS BIGINT)), lambda tide_i: "
        "substr('0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ', 1 + "
        "CAST(floor(random() * 62) AS INTEGER), 1)), '')",
    ),
    of_spark(
        "json_typeof",
        returns="text",
        duckdb="CASE WHEN TRY(json_type({0})) IS NOT NULL THEN CASE TRY(json_type({0})) WHEN 'VARCHAR' THEN "
        "'string' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' WHEN 'ARRAY' THEN 'array' WHEN "
        "'OBJECT' THEN 'object' ELSE 'number' END END",
        spark="CASE WHEN startswith(schema_of_variant(try_parse_json({0})), 'OBJECT') THEN 'object' WHEN "
        "startswith(schema_of_variant(try_parse_json({0})), 'ARRAY') THEN 'array' ELSE CASE "
        "schema_of_variant(try_parse_json({0})) WHEN 'STRING' THEN 'string' WHEN 'BOOLEAN' THEN "
        "'boolean' WHEN 'VOID' THEN 'null' ELSE CASE WHEN try_parse_json({0}) IS NOT NULL THEN 'number' "
        "END END END",
        takes="shown",
    ),
    of_spark("get", duckdb="CASE WHEN ({1}) >= 0 THEN ({0})[({1}) + 1] END"),
    of_spark(
        "array_repeat",
        duckdb="CASE WHEN {1} IS NOT NULL THEN list_transform(range(greatest({1}, 0)), lambda tide_i: {0}) END",
    ),
    of_spark(
        "array_union",
        duckdb="let[[list_concat({0}, {1})]][[list_filter(@, lambda tide_x, tide_i: coalesce(list_position(@, "
        "tide_x), tide_i) = tide_i)]]",
    ),
    of_spark(
        "arrays_overlap",
        returns="bool",
        duckdb="CASE WHEN list_has_any({0}, {1}) THEN TRUE WHEN ({0}) IS NULL OR ({1}) IS NULL OR (len({0}) > 0 "
        "AND len({1}) > 0 AND (len({0}) > list_count({0}) OR len({1}) > list_count({1}))) THEN NULL ELSE "
        "FALSE END",
    ),
    of_spark("map_contains_key", returns="bool", duckdb="list_contains(map_keys({0}), {1})"),
    of_spark(
        "str_to_map",
        duckdb="map_from_entries(list_transform(string_split({0}, {1|','}), lambda tide_x: {'k': "
        "split_part(tide_x, {2|':'}, 1), 'v': CASE WHEN contains(tide_x, {2|':'}) THEN substr(tide_x, "
        "instr(tide_x, {2|':'}) + 1) END}))",
        takes="text",
    ),
    *(
        of_spark(
            name,
            returns="int",
            duckdb="CAST(date_diff('day', TRY_CAST({1} AS DATE), TRY_CAST({0} AS DATE)) AS INTEGER)",
            takes="time",
        )
        for name in ("datediff", "date_diff")
    ),
    of_spark(
        "months_between",
        returns="real",
        duckdb="list_transform([{'a': TRY_CAST({0} AS TIMESTAMP), 'b': TRY_CAST({1} AS TIMESTAMP)}], lambda p: "
        "CASE WHEN day(p.a) = day(p.b) OR (day(p.a) = day(last_day(p.a)) AND day(p.b) = "
        "day(last_day(p.b))) THEN CAST((year(p.a) - year(p.b)) * 12 + month(p.a) - month(p.b) AS DOUBLE) "
        "ELSE round((year(p.a) - year(p.b)) * 12 + month(p.a) - month(p.b) + (epoch(p.a - "
        "date_trunc('month', p.a)) - epoch(p.b - date_trunc('month', p.b))) / 2678400.0, 8) END)[1]",
        takes="time",
    ),
    of_spark("weekday", returns="int", duckdb="CAST(isodow(CAST({0} AS TIMESTAMP)) - 1 AS INTEGER)", takes="time"),
    of_spark("unix_micros", returns="long", duckdb="epoch_us(CAST({0} AS TIMESTAMPTZ))", takes="time"),
    of_spark("unix_millis", returns="long", duckdb="epoch_ms(CAST({0} AS TIMESTAMPTZ))", takes="time"),
    of_spark(
        "unix_seconds", returns="long", duckdb="CAST(floor(epoch(CAST({0} AS TIMESTAMPTZ))) AS BIGINT)", takes="time"
    ),
    of_spark("date_from_unix_date", returns="date", duckdb="(DATE '1970-01-01' + CAST({0} AS INTEGER))"),
    of_spark(
        "make_date",
        returns="date",
        duckdb="TRY(make_date(CAST({0} AS BIGINT), CAST({1} AS BIGINT), CAST({2} AS BIGINT)))",
    ),
    of_spark(
        "next_day",
        returns="date",
        duckdb="let[[TRY_CAST({0} AS DATE)]][[CAST(@ + CAST(CASE left(lower({1}), 2) WHEN 'mo' THEN 1 WHEN 'tu' "
        "THEN 2 WHEN 'we' THEN 3 WHEN 'th' THEN 4 WHEN 'fr' THEN 5 WHEN 'sa' THEN 6 WHEN 'su' THEN 7 END "
        "- isodow(@) + CASE WHEN CASE left(lower({1}), 2) WHEN 'mo' THEN 1 WHEN 'tu' THEN 2 WHEN 'we' "
        "THEN 3 WHEN 'th' THEN 4 WHEN 'fr' THEN 5 WHEN 'sa' THEN 6 WHEN 'su' THEN 7 END <= isodow(@) "
        "THEN 7 ELSE 0 END AS INTEGER) AS DATE)]]",
        takes="time",
    ),
    of_spark(
        "make_ym_interval", returns="interval", duckdb="to_months(CAST(coalesce({0|0}, 0) * 12 + {1|0} AS INTEGER))"
    ),
    of_spark(
        "make_dt_interval",
        returns="interval",
        duckdb="to_microseconds(CAST(((CAST({0|0} AS HUGEINT) * 24 + ({1|0})) * 60 + ({2|0})) * 60000000 + "
        "trunc(({3|0}) * 1000000) AS BIGINT))",
    ),
    of_spark("pmod", returns="same", duckdb="(((({0}) % ({1})) + ({1})) % ({1}))", takes="number"),
    of_spark("isnull", returns="bool", duckdb="(({0}) IS NULL)"),
    of_spark("isnotnull", returns="bool", duckdb="(({0}) IS NOT NULL)"),
    of_spark(
        "nanvl", returns="real", duckdb="CASE WHEN isnan(CAST({0} AS DOUBLE)) THEN {1} ELSE {0} END", takes="number"
    ),
    of_spark(
        "timestamp_seconds",
        returns="time",
        duckdb="make_timestamptz(CAST(trunc(CAST({0} AS DOUBLE) * 1000000) AS BIGINT))",
        takes="number",
    ),
    of_spark("timestamp_millis", returns="time", duckdb="make_timestamptz(CAST({0} AS BIGINT) * 1000)", takes="number"),
    of_spark("timestamp_micros", returns="time", duckdb="make_timestamptz(CAST({0} AS BIGINT))", takes="number"),
    of_spark(
        "conv",
        returns="text",
        duckdb="tide_conv(CAST({0} AS VARCHAR), CAST({1} AS VARCHAR), CAST({2} AS VARCHAR))",
        takes="text",
    ),
    of_spark(
        "parse_url",
        returns="text",
        duckdb="tide_parse_url_part(CAST({0} AS VARCHAR), CAST({1} AS VARCHAR), CAST({2|NULL} AS VARCHAR))",
        takes="text",
    ),
    *(
        of_spark(name, returns="text", duckdb="tide_try_url_decode(CAST({0} AS VARCHAR))", takes="text")
        for name in ("try_url_decode", "url_decode")
    ),
    of_spark("soundex", returns="text", duckdb="tide_soundex(CAST({0} AS VARCHAR))", takes="text"),
    of_spark("luhn_check", returns="bool", duckdb="tide_luhn_check(CAST({0} AS VARCHAR))", takes="text"),
    of_spark("crc32", returns="long", duckdb="tide_crc32(CAST({0} AS VARCHAR))", takes="text"),
    of_spark("try_add", returns="same", duckdb=_try("+"), takes="number"),
    of_spark("try_subtract", returns="same", duckdb=_try("-"), takes="number"),
    of_spark("try_multiply", returns="same", duckdb=_try("*"), takes="number"),
    of_spark("try_sum", returns="same", duckdb=_try_sum, takes="number", aggregates=True),
    of_spark("try_divide", duckdb=_try_divide, takes="number"),
    of_spark("positive", returns="same", duckdb=_plain(""), takes="number"),
    of_spark("negative", returns="same", duckdb=_plain("-"), takes="number"),
    of_spark("shiftleft", returns="same", duckdb=_shift_left, takes="number"),
    of_spark("uniform", duckdb=_uniform),
    *(of_spark(name, returns="text", duckdb=_format_string, takes="text") for name in ("format_string", "printf")),
    of_spark("split", duckdb=_split, takes="text"),
    of_spark("percentile", duckdb=_percentile, takes="number", aggregates=True),
    of_spark("from_json", duckdb=from_json),
    of_spark("elt", returns="text", duckdb=_elt, takes="text"),
    of_spark("lpad", returns="text", duckdb=_padded("lpad"), takes="text"),
    of_spark("rpad", returns="text", duckdb=_padded("rpad"), takes="text"),
    of_spark("make_timestamp", returns="time", duckdb=_make_timestamp),
    *(of_spark(name, returns="text", duckdb=to_char, takes="shown") for name in ("to_char", "to_varchar")),
    of_spark("date_format", returns="text", duckdb=to_text_of_time, takes="time"),
    *(of_spark(name, duckdb=to_number, takes="text") for name in ("to_number", "try_to_number")),
)

CALLS: Mapping[str, Function] = {function.name.removeprefix(OURS): function for function in (*FUNCTIONS, *NESTED)}
