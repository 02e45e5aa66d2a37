"""Write in DuckDB's SQL the functions of Spark that DuckDB lacks, or that answer otherwise there.

A call of one of them reaches the tree under a name of ours (``tokens``) with its arguments as they were given.
Spark is given it back by its own name. What a call gives is said beside it, so that operations around it know its type. It
does not write aggregates of several parts: see ``meaning``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.decimals import digits_of, is_decimal, widest
from tidelake.query.functions.templates import Writer, writer
from tidelake.query.spark_decimals import divides_decimals, quotient
from tidelake.query.sql.formats import from_json, to_char, to_number, to_text_of_time
from tidelake.query.sql.nested import NESTED

OURS = "tide_sql_"
LET = "list_transform([%s], lambda tide_v: %s)[1]"

# What a call gives (``same`` is what its first argument is), and how DuckDB says it.
_WRITTEN = r"""
bround same round_even({0}, {1|0})
rint double round_even(CAST({0} AS DOUBLE), 0)
hypot double sqrt(CAST({0} AS DOUBLE) * ({0}) + CAST({1} AS DOUBLE) * ({1}))
expm1 double (exp({0}) - 1)
log1p double CASE WHEN ({0}) > -1 THEN ln(1 + ({0})) END
csc double (1 / nullif(sin({0}), 0))
sec double (1 / cos({0}))
cot double CASE WHEN ({0}) = 0 THEN CAST('Infinity' AS DOUBLE) ELSE 1 / tan({0}) END
e double exp(CAST(1 AS DOUBLE))
factorial bigint CASE WHEN ({0}) BETWEEN 0 AND 20 THEN CAST(factorial(CAST({0} AS INTEGER)) AS BIGINT) END
pow double CASE WHEN isnan(CAST({1} AS DOUBLE)) OR (abs(CAST({0} AS DOUBLE)) = 1 AND isinf(CAST({1} AS DOUBLE))) THEN CAST('NaN' AS DOUBLE) ELSE pow(CAST({0} AS DOUBLE), CAST({1} AS DOUBLE)) END
width_bucket bigint CASE WHEN trunc(CAST({3} AS DOUBLE)) < 1 OR CAST({1} AS DOUBLE) = CAST({2} AS DOUBLE) OR ({0}) IS NULL OR ({1}) IS NULL OR ({2}) IS NULL OR isnan(CAST({0} AS DOUBLE)) OR isnan(CAST({1} AS DOUBLE)) OR isnan(CAST({2} AS DOUBLE)) THEN NULL WHEN CAST({1} AS DOUBLE) < ({2}) THEN CASE WHEN CAST({0} AS DOUBLE) < ({1}) THEN 0 WHEN CAST({0} AS DOUBLE) >= ({2}) THEN CAST({3} AS BIGINT) + 1 ELSE CAST(floor(CAST({3} AS DOUBLE) * (CAST({0} AS DOUBLE) - CAST({1} AS DOUBLE)) / (CAST({2} AS DOUBLE) - CAST({1} AS DOUBLE))) AS BIGINT) + 1 END ELSE CASE WHEN CAST({0} AS DOUBLE) > ({1}) THEN 0 WHEN CAST({0} AS DOUBLE) <= ({2}) THEN CAST({3} AS BIGINT) + 1 ELSE CAST(floor(CAST({3} AS DOUBLE) * (CAST({1} AS DOUBLE) - CAST({0} AS DOUBLE)) / (CAST({1} AS DOUBLE) - CAST({2} AS DOUBLE))) AS BIGINT) + 1 END END
nullifzero same nullif({0}, 0)
zeroifnull same coalesce({0}, 0)
equal_null bool (({0}) IS NOT DISTINCT FROM ({1}))
bit_count int CAST(bit_count(CAST({0} AS BIGINT)) AS INTEGER)
getbit int CAST((CAST({0} AS BIGINT) >> ({1})) & 1 AS INTEGER)
bit_get int CAST((CAST({0} AS BIGINT) >> ({1})) & 1 AS INTEGER)
shiftrightunsigned same CASE WHEN ({0}) >= 0 THEN ({0}) >> ({1}) ELSE CAST((({0}) + CASE WHEN typeof({0}) = 'BIGINT' THEN 18446744073709551616 ELSE 4294967296 END) // pow(2, {1})::HUGEINT AS BIGINT) END
every bool bool_and({0})
some bool bool_or({0})
any bool bool_or({0})
std double stddev_samp({0})
try_avg double avg({0})
try_mod same (({0}) % nullif({1}, 0))
try_element_at ? ({0})[{1}]
try_make_timestamp timestamp CAST(NULL AS TIMESTAMPTZ)
left text CASE WHEN TRY_CAST({1} AS INTEGER) IS NOT NULL THEN left(CAST({0} AS VARCHAR), greatest(TRY_CAST({1} AS INTEGER), 0)) END
right text CASE WHEN TRY_CAST({1} AS INTEGER) IS NOT NULL THEN right(CAST({0} AS VARCHAR), greatest(TRY_CAST({1} AS INTEGER), 0)) END
btrim text trim({0}, {1|' '})
replace text replace({0}, {1}, {2|''})
regexp bool regexp_matches({0}, {1})
regexp_substr text CASE WHEN regexp_matches({0}, {1}) THEN nullif(regexp_extract({0}, {1}), '') END
substring_index text OF[[{0}]][[CASE WHEN ({2}) >= 0 THEN array_to_string(list_slice(string_split(@, {1}), 1, {2}), {1}) ELSE array_to_string(list_slice(string_split(@, {1}), {2}, -1), {1}) END]]
find_in_set int CAST(coalesce(CASE WHEN contains({0}, ',') THEN 0 WHEN ({0}) IS NOT NULL AND ({1}) IS NOT NULL THEN coalesce(list_position(string_split({1}, ','), {0}), 0) END) AS INTEGER)
mask text regexp_replace(regexp_replace(regexp_replace({0}, '\p{Lu}', {1|'X'}, 'g'), '\p{Ll}', {2|'x'}, 'g'), '\d', {3|'n'}, 'g')
split_part text CASE WHEN ({1}) = '' THEN CASE WHEN ({2}) IN (1, -1) THEN {0} ELSE '' END ELSE split_part({0}, {1}, {2}) END
quote text ('''' || replace(replace({0}, '\', '\\'), '''', '\''') || '''')
json_array_length int CASE WHEN TRY(json_type({0})) = 'ARRAY' THEN CAST(TRY(json_array_length({0})) AS INTEGER) END
json_object_keys ? CASE WHEN TRY(json_type({0})) = 'OBJECT' THEN TRY(json_keys({0})) END
array_position bigint CASE WHEN ({0}) IS NOT NULL AND ({1}) IS NOT NULL THEN coalesce(list_position({0}, {1}), 0) END
array_remove same CASE WHEN ({1}) IS NOT NULL THEN list_filter({0}, lambda tide_x: tide_x IS DISTINCT FROM ({1})) END
array_distinct same OF[[{0}]][[list_filter(@, lambda tide_x, tide_i: list_position(@, tide_x) = tide_i)]]
flatten ? CASE WHEN list_count({0}) = len({0}) THEN flatten({0}) END
array_contains bool CASE WHEN ({0}) IS NULL OR ({1}) IS NULL THEN NULL WHEN list_contains({0}, {1}) THEN TRUE WHEN list_count({0}) = len({0}) THEN FALSE END
url_encode text replace(replace(replace(url_encode(CAST({0} AS VARCHAR)), '%20', '+'), '~', '%7E'), '%2A', '*')
sign double CAST(sign(CAST({0} AS DOUBLE)) AS DOUBLE)
signum double CAST(sign(CAST({0} AS DOUBLE)) AS DOUBLE)
from_utc_timestamp timestamp make_timestamptz(tide_micros_to_zone(CAST(epoch_us({0}) AS VARCHAR), CAST({1} AS VARCHAR)))
to_utc_timestamp timestamp make_timestamptz(tide_micros_from_zone(CAST(epoch_us({0}) AS VARCHAR), CAST({1} AS VARCHAR)))
randstr text array_to_string(list_transform(range(CAST({0} AS BIGINT)), lambda tide_i: substr('0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ', 1 + CAST(floor(random() * 62) AS INTEGER), 1)), '')
json_typeof text CASE WHEN TRY(json_type({0})) IS NOT NULL THEN CASE TRY(json_type({0})) WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' WHEN 'ARRAY' THEN 'array' WHEN 'OBJECT' THEN 'object' ELSE 'number' END END
get ? CASE WHEN ({1}) >= 0 THEN ({0})[({1}) + 1] END
array_repeat ? CASE WHEN {1} IS NOT NULL THEN list_transform(range(greatest({1}, 0)), lambda tide_i: {0}) END
array_union ? OF[[list_concat({0}, {1})]][[list_filter(@, lambda tide_x, tide_i: coalesce(list_position(@, tide_x), tide_i) = tide_i)]]
arrays_overlap bool CASE WHEN list_has_any({0}, {1}) THEN TRUE WHEN ({0}) IS NULL OR ({1}) IS NULL OR (len({0}) > 0 AND len({1}) > 0 AND (len({0}) > list_count({0}) OR len({1}) > list_count({1}))) THEN NULL ELSE FALSE END
map_contains_key bool list_contains(map_keys({0}), {1})
str_to_map ? map_from_entries(list_transform(string_split({0}, {1|','}), lambda tide_x: {'k': split_part(tide_x, {2|':'}, 1), 'v': CASE WHEN contains(tide_x, {2|':'}) THEN substr(tide_x, instr(tide_x, {2|':'}) + 1) END}))
datediff int CAST(date_diff('day', TRY_CAST({1} AS DATE), TRY_CAST({0} AS DATE)) AS INTEGER)
date_diff int CAST(date_diff('day', TRY_CAST({1} AS DATE), TRY_CAST({0} AS DATE)) AS INTEGER)
months_between double list_transform([{'a': TRY_CAST({0} AS TIMESTAMP), 'b': TRY_CAST({1} AS TIMESTAMP)}], lambda p: CASE WHEN day(p.a) = day(p.b) OR (day(p.a) = day(last_day(p.a)) AND day(p.b) = day(last_day(p.b))) THEN CAST((year(p.a) - year(p.b)) * 12 + month(p.a) - month(p.b) AS DOUBLE) ELSE round((year(p.a) - year(p.b)) * 12 + month(p.a) - month(p.b) + (epoch(p.a - date_trunc('month', p.a)) - epoch(p.b - date_trunc('month', p.b))) / 2678400.0, 8) END)[1]
weekday int CAST(isodow(CAST({0} AS TIMESTAMP)) - 1 AS INTEGER)
unix_micros bigint epoch_us(CAST({0} AS TIMESTAMPTZ))
unix_millis bigint epoch_ms(CAST({0} AS TIMESTAMPTZ))
unix_seconds bigint CAST(floor(epoch(CAST({0} AS TIMESTAMPTZ))) AS BIGINT)
date_from_unix_date date (DATE '1970-01-01' + CAST({0} AS INTEGER))
make_date date TRY(make_date(CAST({0} AS BIGINT), CAST({1} AS BIGINT), CAST({2} AS BIGINT)))
next_day date OF[[TRY_CAST({0} AS DATE)]][[CAST(@ + CAST(CASE left(lower({1}), 2) WHEN 'mo' THEN 1 WHEN 'tu' THEN 2 WHEN 'we' THEN 3 WHEN 'th' THEN 4 WHEN 'fr' THEN 5 WHEN 'sa' THEN 6 WHEN 'su' THEN 7 END - isodow(@) + CASE WHEN CASE left(lower({1}), 2) WHEN 'mo' THEN 1 WHEN 'tu' THEN 2 WHEN 'we' THEN 3 WHEN 'th' THEN 4 WHEN 'fr' THEN 5 WHEN 'sa' THEN 6 WHEN 'su' THEN 7 END <= isodow(@) THEN 7 ELSE 0 END AS INTEGER) AS DATE)]]
make_ym_interval interval to_months(CAST(coalesce({0|0}, 0) * 12 + {1|0} AS INTEGER))
make_dt_interval interval to_microseconds(CAST(((CAST({0|0} AS HUGEINT) * 24 + ({1|0})) * 60 + ({2|0})) * 60000000 + trunc(({3|0}) * 1000000) AS BIGINT))
pmod same (((({0}) % ({1})) + ({1})) % ({1}))
isnull bool (({0}) IS NULL)
isnotnull bool (({0}) IS NOT NULL)
nanvl double CASE WHEN isnan(CAST({0} AS DOUBLE)) THEN {1} ELSE {0} END
timestamp_seconds timestamp make_timestamptz(CAST(trunc(CAST({0} AS DOUBLE) * 1000000) AS BIGINT))
timestamp_millis timestamp make_timestamptz(CAST({0} AS BIGINT) * 1000)
timestamp_micros timestamp make_timestamptz(CAST({0} AS BIGINT))
conv text tide_conv(CAST({0} AS VARCHAR), CAST({1} AS VARCHAR), CAST({2} AS VARCHAR))
parse_url text tide_parse_url_part(CAST({0} AS VARCHAR), CAST({1} AS VARCHAR), CAST({2|NULL} AS VARCHAR))
try_url_decode text tide_try_url_decode(CAST({0} AS VARCHAR))
url_decode text tide_try_url_decode(CAST({0} AS VARCHAR))
soundex text tide_soundex(CAST({0} AS VARCHAR))
luhn_check bool tide_luhn_check(CAST({0} AS VARCHAR))
crc32 bigint tide_crc32(CAST({0} AS VARCHAR))
"""


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
    return LET % (interval, kept)


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
        return f"CASE WHEN {pad} = '' THEN left({subject}, {length}) ELSE {side}({subject}, {length}, nullif({pad}, '')) END"

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
    if divides_decimals(nodes[0], nodes[1]):
        return quotient(nodes[0], nodes[1]).sql("duckdb")
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


_MADE: dict[str, tuple[str, Writer]] = {
    "try_add": ("same", _try("+")),
    "try_subtract": ("same", _try("-")),
    "try_multiply": ("same", _try("*")),
    "try_sum": ("same", _try_sum),
    "try_divide": ("?", _try_divide),
    "positive": ("same", _plain("")),
    "negative": ("same", _plain("-")),
    "shiftleft": ("same", _shift_left),
    "uniform": ("?", _uniform),
    "format_string": ("text", _format_string),
    "printf": ("text", _format_string),
    "split": ("?", _split),
    "percentile": ("?", _percentile),
    "from_json": ("?", from_json),
    "elt": ("text", _elt),
    "lpad": ("text", _padded("lpad")),
    "rpad": ("text", _padded("rpad")),
    "make_timestamp": ("timestamp", _make_timestamp),
    "to_char": ("text", to_char),
    "to_varchar": ("text", to_char),
    "date_format": ("text", to_text_of_time),
    "to_number": ("?", to_number),
    "try_to_number": ("?", to_number),
    **NESTED,
}
# How Spark says the functions that it gained after the version we run.
ON_SPARK = {
    "json_typeof": "CASE WHEN startswith(schema_of_variant(try_parse_json({0})), 'OBJECT') THEN 'object'"
    " WHEN startswith(schema_of_variant(try_parse_json({0})), 'ARRAY') THEN 'array'"
    " ELSE CASE schema_of_variant(try_parse_json({0})) WHEN 'STRING' THEN 'string' WHEN 'BOOLEAN' THEN 'boolean'"
    " WHEN 'VOID' THEN 'null' ELSE CASE WHEN try_parse_json({0}) IS NOT NULL THEN 'number' END END END",
}
_ALIASES = {"power": "pow"}


def _read() -> dict[str, tuple[str, Writer]]:
    found = dict(_MADE)
    for line in _WRITTEN.strip().splitlines():
        name, gives, template = line.split(" ", 2)
        found[name] = (gives, _of(template))
    return found | {alias: found[name] for alias, name in _ALIASES.items()}


def _of(template: str) -> Writer:
    if template.startswith("OF[["):
        value, _, body = template.removeprefix("OF[[").removesuffix("]]").partition("]][[")
        return writer(LET % (value, body.replace("@", "tide_v")), LET)
    return writer(template, LET)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# As what a dynamic value is taken that is given to one of them; by the others it is left as it is.
TAKEN_AS = {
    "tide_text": _names(
        "left right replace split lpad rpad btrim regexp regexp_substr substring_index find_in_set mask "
        "split_part quote soundex luhn_check conv parse_url url_decode try_url_decode crc32 to_number "
        "try_to_number elt printf format_string str_to_map"
    ),
    "tide_number": _names(
        "bround rint positive negative hypot expm1 log1p csc sec cot factorial pow power width_bucket "
        "nullifzero zeroifnull bit_count getbit bit_get shiftrightunsigned std try_avg try_sum try_divide "
        "try_mod try_add try_subtract try_multiply pmod nanvl timestamp_seconds timestamp_millis "
        "timestamp_micros percentile sign signum shiftleft"
    ),
    "tide_time": _names("weekday unix_micros unix_millis unix_seconds next_day date_format datediff date_diff months_between"),
    "tide_flag": _names("every some any"),
    "tide_shown": _names("json_array_length json_object_keys json_typeof to_char to_varchar"),
}  # fmt: skip
AGGREGATE_CALLS = frozenset({"every", "some", "any", "std", "try_sum", "try_avg", "percentile"})
ROW_CALLS = frozenset({"explode_outer", "posexplode_outer", "inline_outer", "json_tuple"})
CALLS: dict[str, tuple[str, Writer]] = _read()
WRITERS: dict[str, Writer] = {OURS + name: made for name, (_, made) in CALLS.items()}
