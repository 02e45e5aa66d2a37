"""List KQL's scalar functions: what each takes, what it gives, and the portable function behind it.

``FUNCTIONS`` is the whole list, and the reference is generated from it. A rule gets bound arguments; most are one line
of ``_PLAIN``. It does not know columns.
"""

from __future__ import annotations

import calendar
import re as regex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.literals import TICKS_PER_DAY
from tidelake.query.kql.packed_functions import PACKED
from tidelake.query.kql.values import (
    NUMERIC,
    TEXTUAL,
    Value,
    any_of,
    at_ticks,
    call,
    cast,
    literal,
    text,
    text_literal,
)  # fmt: skip
from tidelake.query.kql.varied_functions import VARIED
from tidelake.query.text_patterns import plain_groups


def _plain(target: str, result: str, *kinds: str) -> Rule:
    def rule(args: Arguments) -> Value:
        values = [args.as_type(index, kinds[min(index, len(kinds) - 1)]) for index in range(len(args))]
        return Value(call(target, *(value.sql for value in values)), result)

    return rule


# name(s): portable function, result type, argument types; a type in brackets may be left out, "…" repeats the last.
_PLAIN = """
strlen: tide_strlen long text
string_size: tide_string_size long text
tolower: tide_lower string text
toupper: tide_upper string text
reverse: tide_reverse string text
trim: tide_trim string text text
trim_start: tide_trim_start string text text
trim_end: tide_trim_end string text text
countof: tide_countof long text text [text]
replace_string: tide_replace string text text text
replace_regex: tide_replace_regex string text text text
translate: tide_translate string text text text
strrep: tide_strrep string text long [text]
url_encode: tide_url_encode_form string text
url_encode_component: tide_url_encode string text
url_decode: tide_url_decode string text
base64_encode_tostring: tide_base64_encode string text
base64_encodestring: tide_base64_encode string text
base64_decode_tostring: tide_base64_decode string text
base64_decodestring: tide_base64_decode string text
base64_decode_toarray: tide_base64_to_array dynamic text
base64_encode_fromarray: tide_base64_from_array string dynamic
base64_encode_fromguid: tide_base64_from_guid string text
base64_decode_toguid: tide_base64_to_guid guid text
zlib_compress_to_base64_string: tide_zlib_pack string text
zlib_decompress_from_base64_string: tide_zlib_unpack string text
gzip_compress_to_base64_string: tide_gzip_pack string text
gzip_decompress_from_base64_string: tide_gzip_unpack string text
hash_md5: tide_md5 string text
hash_sha1: tide_sha1 string text
hash_sha256: tide_sha256 string text
regex_quote: tide_regex_quote string text
isascii: tide_is_ascii bool text
to_utf8: tide_codepoints dynamic text
unicode_codepoints_from_string: tide_codepoints dynamic text
strcmp: tide_strcmp long text text
parse_url: tide_parse_url dynamic text
parseurl: tide_parse_url dynamic text
parse_urlquery: tide_parse_urlquery dynamic text
parseurlquery: tide_parse_urlquery dynamic text
parse_path: tide_parse_path dynamic text
parse_csv: tide_parse_csv dynamic text
parse_xml: tide_parse_xml dynamic text
parse_version: tide_parse_version decimal text
parse_ipv4: tide_parse_ipv4 long text
parse_ipv4_mask: tide_parse_ipv4_mask long text long
format_ipv4: tide_format_ipv4 string any [long]
format_ipv4_mask: tide_format_ipv4_mask string any [long]
ipv4_is_private: tide_ipv4_is_private bool text
ipv4_is_in_range: tide_ipv4_is_in_range bool text text
ipv4_is_match: tide_ipv4_is_match bool text text [long]
ipv4_compare: tide_ipv4_compare long text text [long]
ipv4_netmask_suffix: tide_ipv4_netmask_suffix long text
ipv6_is_match: tide_ipv6_is_match bool text text [long]
ipv6_is_in_range: tide_ipv6_is_match bool text text
parse_ipv6: tide_parse_ipv6 string text
parse_ipv6_mask: tide_ipv6_mask string text long
ipv6_compare: tide_ipv6_compare long text text [long]
ipv4_range_to_cidr_list: tide_cidr_list dynamic text text
has_ipv4: tide_has_ipv4 bool text text
has_ipv4_prefix: tide_has_ipv4_prefix bool text text
punycode_from_string: tide_punycode_encode string text
punycode_to_string: tide_punycode_decode string text
punycode_domain_from_string: tide_punycode_domain_encode string text
punycode_domain_to_string: tide_punycode_domain_decode string text
array_length: tide_array_length long dynamic
arraylength: tide_array_length long dynamic
array_slice: tide_array_slice dynamic dynamic long long
array_reverse: tide_array_reverse dynamic dynamic
array_sum: tide_array_sum real dynamic
array_concat: tide_array_concat dynamic dynamic …
set_union: tide_set_union dynamic dynamic …
set_intersect: tide_set_intersect dynamic dynamic …
set_difference: tide_set_difference dynamic dynamic …
set_equals: tide_set_equals bool dynamic dynamic
bag_keys: tide_bag_keys dynamic dynamic
bag_merge: tide_bag_merge dynamic dynamic …
bag_zip: tide_bag_zip dynamic dynamic dynamic
zip: tide_zip dynamic dynamic …
dynamic_to_json: tide_to_json string dynamic
strcat_array: tide_array_join string dynamic text
array_strcat: tide_array_join string dynamic text
jaccard_index: tide_jaccard real dynamic dynamic
sqrt: tide_sqrt real real
exp: tide_exp real real
exp2: tide_exp2 real real
exp10: tide_exp10 real real
log: tide_ln real real
log2: tide_log2 real real
log10: tide_log10 real real
pow: tide_pow real real real
sin: tide_sin real real
cos: tide_cos real real
tan: tide_tan real real
asin: tide_asin real real
acos: tide_acos real real
atan: tide_atan real real
atan2: tide_atan2 real real real
cot: tide_cot real real
degrees: tide_degrees real real
radians: tide_radians real real
isnan: tide_isnan bool real
isinf: tide_isinf bool real
isfinite: tide_isfinite bool real
erf: tide_erf real real
erfc: tide_erfc real real
gamma: tide_gamma real real
loggamma: tide_loggamma real real
new_guid: tide_new_guid guid
treepath: tide_treepath dynamic dynamic
geo_geohash_to_central_point: tide_geohash_center dynamic text
binary_and: tide_bit_and long long long
binary_or: tide_bit_or long long long
binary_xor: tide_bit_xor long long long
binary_not: tide_bit_not long long
binary_shift_left: tide_shift_left long long long
binary_shift_right: tide_shift_right long long long
bitset_count_ones: tide_bit_count long long
dayofweek: tide_dayofweek timespan datetime
dayofmonth: tide_dayofmonth int datetime
dayofyear: tide_dayofyear int datetime
hourofday: tide_hourofday int datetime
monthofyear: tide_monthofyear int datetime
getmonth: tide_monthofyear int datetime
getyear: tide_year int datetime
week_of_year: tide_weekofyear int datetime
weekofyear: tide_weekofyear int datetime
unixtime_seconds_todatetime: tide_from_unix_seconds datetime real
unixtime_milliseconds_todatetime: tide_from_unix_millis datetime long
unixtime_microseconds_todatetime: tide_from_unix_micros datetime long
unixtime_nanoseconds_todatetime: tide_from_unix_nanos datetime long
make_datetime: tide_make_datetime datetime long long long [long] [long] [real]
tohex: tide_to_hex string long [long]
format_bytes: tide_format_bytes string real [long] [text]
series_sum: tide_array_sum real dynamic
series_add: tide_series_add dynamic dynamic dynamic
series_subtract: tide_series_subtract dynamic dynamic dynamic
series_multiply: tide_series_multiply dynamic dynamic dynamic
series_divide: tide_series_divide dynamic dynamic dynamic
series_fit_line: tide_series_fit_line_list dynamic dynamic
series_fit_line_dynamic: tide_series_fit_line dynamic dynamic
series_pow: tide_series_pow dynamic dynamic dynamic
series_greater: tide_series_greater dynamic dynamic dynamic
series_greater_equals: tide_series_greater_equals dynamic dynamic dynamic
series_less: tide_series_less dynamic dynamic dynamic
series_less_equals: tide_series_less_equals dynamic dynamic dynamic
series_equals: tide_series_equals dynamic dynamic dynamic
series_not_equals: tide_series_not_equals dynamic dynamic dynamic
series_abs: tide_series_abs dynamic dynamic
series_exp: tide_series_exp dynamic dynamic
series_log: tide_series_log dynamic dynamic
series_sign: tide_series_sign dynamic dynamic
series_sin: tide_series_sin dynamic dynamic
series_cos: tide_series_cos dynamic dynamic
series_tan: tide_series_tan dynamic dynamic
series_asin: tide_series_asin dynamic dynamic
series_acos: tide_series_acos dynamic dynamic
series_atan: tide_series_atan dynamic dynamic
series_floor: tide_series_floor dynamic dynamic
series_ceiling: tide_series_ceiling dynamic dynamic
series_pearson_correlation: tide_series_pearson real dynamic dynamic
series_product: tide_series_product real dynamic
series_magnitude: tide_series_magnitude real dynamic
series_dot_product: tide_series_dot real dynamic dynamic
parse_command_line: tide_parse_command_line dynamic text text
isutf8: tide_is_utf8 bool text
array_rotate_left: tide_array_rotate_left dynamic dynamic long
array_rotate_right: tide_array_rotate_right dynamic dynamic long
"""


def _read_plain() -> dict[str, ScalarFunction]:
    found: dict[str, ScalarFunction] = {}
    for line in _PLAIN.strip().splitlines():
        name, rest = line.split(": ")
        target, result, *kinds = rest.split()
        least = sum(not kind.startswith("[") and kind != "…" for kind in kinds)
        most = 64 if "…" in kinds else len(kinds)
        types = [kind.strip("[]") for kind in kinds if kind != "…"] or ["any"]
        found[name] = ScalarFunction(name, least, most, _plain(target, result, *types), result)
    return found


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


def _strcat(args: Arguments) -> Value:
    parts = [args.as_type(index, "text") for index in range(len(args))]
    if all(part.is_constant for part in parts):
        return literal("".join(part.constant or "" for part in parts), "string")
    return Value(call("tide_strcat", *(text(part) for part in parts)), "string")


def _strcat_delim(args: Arguments) -> Value:
    parts = [text(args.as_type(index, "text")) for index in range(len(args))]
    return Value(call("tide_strcat_delim", *parts), "string")


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
    """Give branches as one type, as ``iff`` and ``case`` need."""
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


def _now(args: Arguments) -> Value:
    offset = args.constant(0, "the offset") if len(args) else 0
    return literal(args.scope.clock.now() + at_ticks(offset), "datetime")


def _ago(args: Arguments) -> Value:
    span = args.as_type(0, "timespan")
    if span.is_null:
        return literal(None, "datetime")
    if span.is_constant:
        try:
            return literal(args.scope.clock.now() - at_ticks(span.constant), "datetime")
        except (OverflowError, TypeError):
            raise args.error("ago goes beyond the calendar", 0) from None
    now = literal(args.scope.clock.now(), "datetime").sql
    return Value(call("tide_add_ticks", now, exp.Neg(this=exp.Paren(this=span.sql))), "datetime")


def _start_of(unit: str) -> Rule:
    def rule(args: Arguments) -> Value:
        time = args.as_type(0, "datetime")
        offset = args.as_type(1, "long") if len(args) > 1 else literal(0, "long")
        if time.is_constant and offset.is_constant:
            return literal(None if time.is_null else start_of(time.constant, unit, offset.constant), "datetime")
        return Value(call(f"tide_start_of_{unit}", time.sql, offset.sql), "datetime")

    return rule


def _end_of(unit: str) -> Rule:
    def rule(args: Arguments) -> Value:
        time = args.as_type(0, "datetime")
        offset = args.as_type(1, "long") if len(args) > 1 else literal(0, "long")
        if time.is_null:
            return time
        if time.is_constant and offset.is_constant:
            after = start_of(time.constant, unit, offset.constant + 1)
            return literal(after - timedelta(microseconds=1), "datetime")
        next_one = exp.Paren(this=exp.Add(this=offset.sql, expression=exp.Literal.number(1)))
        following = call(f"tide_start_of_{unit}", time.sql, next_one)
        return Value(call("tide_add_ticks", following, exp.Neg(this=exp.Literal.number(10))), "datetime")

    return rule


def start_of(time: datetime, unit: str, offset: int) -> datetime:
    """Give where a day, week (from Sunday), month or year begins, some units away."""
    day = time.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "day":
            return day + timedelta(days=offset)
        case "week":
            return day - timedelta(days=(day.weekday() + 1) % 7) + timedelta(weeks=offset)
        case "month":
            months = day.year * 12 + day.month - 1 + offset
            return day.replace(year=months // 12, month=months % 12 + 1, day=1)
        case _:
            return day.replace(year=day.year + offset, month=1, day=1)


def _bin(args: Arguments) -> Value:
    value = args[0]
    if value.type == "dynamic":
        value = convert(value, "real")
    size = args[1] if len(args) > 1 else literal(1, "long")
    if value.type in ("datetime", "timespan"):
        if size.type in NUMERIC and size.is_constant:
            size = literal(int(size.constant * TICKS_PER_DAY), "timespan")
        size = implicit(size, "timespan") or size
        if size.type != "timespan":
            raise args.error(f"a bin of {value.type} needs a timespan, this is {size.type}", 1, kind="type")
        _check_size(args, size)
        if value.type == "datetime" and value.is_constant and size.is_constant and value.constant is not None:
            return literal(_bin_time(value.constant, size.constant), "datetime")
        target = "tide_bin_datetime" if value.type == "datetime" else "tide_bin_long"
        return Value(call(target, value.sql, size.sql), value.type)
    if value.type not in NUMERIC or size.type not in (*NUMERIC, "dynamic"):
        hint = ": use todatetime(…) or totimespan(…)" if args[0].type == "dynamic" else ""
        raise args.error(f"{args.name} cannot use {args[0].type} and {size.type}{hint}", kind="type")
    _check_size(args, size)
    if {"real", "decimal", "dynamic"} & {value.type, size.type}:
        return Value(call("tide_bin_real", convert(value, "real").sql, convert(size, "real").sql), "real")
    return Value(call("tide_bin_long", cast(value.sql, "long"), size.sql), "long")


def _bin_time(time: datetime, ticks: int) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=time.tzinfo)
    micros = (time - epoch) // timedelta(microseconds=1)
    step = max(ticks // 10, 1)
    offset = 62_135_596_800_000_000  # bins are counted from the year 1
    return epoch + timedelta(microseconds=(micros + offset) // step * step - offset)


def _check_size(args: Arguments, size: Value) -> None:
    if size.is_constant and (size.constant is None or size.constant <= 0):
        raise args.error("the size of a bin must be above zero", 1)


def _bin_at(args: Arguments) -> Value:
    value, size, origin = args.values
    if value.type == "datetime":
        origin = args.as_type(2, "datetime")
        return Value(call("tide_bin_at_datetime", value.sql, args.as_type(1, "timespan").sql, origin.sql), "datetime")
    kind = "real" if "real" in (value.type, size.type, origin.type) else value.type
    sides = [convert(side, kind).sql if kind == "real" else side.sql for side in (value, size, origin)]
    return Value(call("tide_bin_at_real" if kind == "real" else "tide_bin_at_long", *sides), kind)


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


def _split(args: Arguments) -> Value:
    subject, delimiter = args.as_type(0, "text"), args.as_type(1, "text")
    parts = call("tide_split", text(subject), delimiter.sql)
    if len(args) < 3:
        return Value(parts, "dynamic")
    return Value(call("tide_pack_array", call("tide_at", parts, args.as_type(2, "long").sql)), "dynamic")


def _extract(args: Arguments) -> Value:
    pattern, group, subject = _pattern(args, 0), args.as_type(1, "long"), args.as_type(2, "text")
    if pattern.is_constant and group.is_constant and not 0 <= (group.constant or 0) <= _group_count(pattern.constant):
        found = literal("", "string")
    else:
        found = Value(call("tide_extract", pattern.sql, group.sql, text(subject)), "string")
    return convert(found, str(args.constant(3, "the type"))) if len(args) > 3 else found


def _pattern(args: Arguments, index: int) -> Value:
    """Give a regular expression in words that both engines know."""
    value = args.as_type(index, "text")
    return literal(plain_groups(value.constant), "string") if value.is_constant and value.constant else value


def _extract_all(args: Arguments) -> Value:
    subject = args.as_type(len(args) - 1, "text")
    pattern = args.as_type(0, "text")
    groups = _group_count(str(pattern.constant)) if pattern.is_constant else 1
    chosen = list(range(1, groups + 1))
    if len(args) > 2:
        chosen = [_group(args, group, str(pattern.constant)) for group in args.constant(1, "the groups")]
    lists = [
        call("tide_extract_group", _pattern(args, 0).sql, exp.Literal.number(group), text(subject))
        for group in chosen or [0]
    ]
    return Value(lists[0] if len(lists) == 1 else call("tide_zip", *lists), "dynamic")


_CAPTURES = regex.compile(r"\\.|(\((?!\?)|\(\?P?<(\w+)>)")


def _group(args: Arguments, group: Any, pattern: str) -> int:
    """Give a group's number, by number or by name."""
    if not isinstance(group, str):
        return int(group)
    names = [match[2] for match in _CAPTURES.finditer(pattern) if match[1]]
    if group not in names:
        raise args.error(f"the pattern has no group '{group}'", 1)
    return names.index(group) + 1


def _group_count(pattern: str) -> int:

    try:
        return regex.compile(pattern).groups
    except (regex.error, OverflowError, RecursionError):
        return pattern.count("(") - pattern.count(r"\(") - pattern.count("(?")


def _extract_json(args: Arguments) -> Value:
    path = args.constant(0, "the path")
    if not isinstance(path, str) or not path.startswith("$"):
        raise args.error("a path begins with $", 0)
    steps = path[1:].lstrip(".").replace("['", ".").replace('["', ".").replace("']", "").replace('"]', "")
    subject = (
        args[1] if args[1].type == "dynamic" else Value(call("tide_parse_json", args.as_type(1, "text").sql), "dynamic")
    )
    found = Value(call("tide_get", subject.sql, text_literal(steps.lstrip("."))), "dynamic") if steps else subject
    return convert(found, str(args.constant(2, "the type")) if len(args) > 2 else "string")


def _substring(args: Arguments) -> Value:
    subject, start = args.as_type(0, "text"), args.as_type(1, "long")
    bounds = [start, *([args.as_type(2, "long")] if len(args) > 2 else [])]
    plain = all(isinstance(bound.constant, int) and bound.constant >= 0 for bound in bounds)
    target = "tide_substring" if plain else "tide_substring_from"
    return Value(call(target, text(subject), *(bound.sql for bound in bounds)), "string")


def _indexof(target: str) -> Rule:
    """Bind a search for a place: most ask for the first, which engines find by themselves."""

    def rule(args: Arguments) -> Value:
        sides = [text(args.as_type(index, "text")) for index in range(2)]
        if target == "tide_indexof_from" and len(args) == 2:
            return Value(call("tide_indexof", *sides), "long")
        options = [args.as_type(at, "long") for at in range(2, len(args))]
        options += [literal(default, "long") for default in (0, -1, 1)[len(options) :]]
        parts = [
            exp.Literal.string("["),
            options[0].sql,
            *(each for option in options[1:] for each in (exp.Literal.string(","), option.sql)),
            exp.Literal.string("]"),
        ]
        return Value(call(target, *sides, call("tide_strcat", *(cast(part, "string") for part in parts))), "long")

    return rule


def _hash(args: Arguments) -> Value:
    value = args[0]
    kind = {"int": "long", "timespan": "long", "datetime": "long", "decimal": "real"}.get(value.type, value.type)
    if kind == "long":
        value = convert(value, "long")
    elif kind != "real":
        kind, value = "string", convert(value, "string")
    subject = text(value) if kind == "string" else value.sql
    divisor = [args.as_type(1, "long").sql] if len(args) > 1 else []
    return Value(call("tide_hashed", subject, text_literal(kind), *divisor), "long")


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


def _make_string(args: Arguments) -> Value:
    parts = [convert(value, "dynamic").sql for value in args.values]
    return Value(call("tide_from_codepoints", call("tide_to_json", call("tide_pack_array", *parts))), "string")


def _gettype(args: Arguments) -> Value:
    """Give the type as it is known, and of a dynamic value that of what it holds."""
    if args[0].type in ("dynamic", "vector"):
        return Value(call("tide_type_of", args.as_type(0, "dynamic").sql), "string")
    return literal(args[0].type, "string")


def _at_zone(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        zone = args.as_type(1, "text")
        if zone.is_constant:
            try:
                ZoneInfo(str(zone.constant))
            except (KeyError, ValueError, OSError):
                raise args.error(f"there is no time zone '{zone.constant}'", 1) from None
        return Value(call(target, args.as_type(0, "datetime").sql, zone.sql), "datetime")

    return rule


def _replace_strings(args: Arguments) -> Value:
    found = text(args.as_type(0, "text"))
    olds, news = args.constant(1, "what is replaced"), args.constant(2, "what replaces it")
    for at, old in enumerate(olds or []):
        new = news[at] if isinstance(news, list) else str(news)
        found = call("tide_replace", found, text_literal(str(old)), text_literal(str(new)))
    return Value(found, "string")


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


def _array_iff(args: Arguments) -> Value:
    sides = [convert(value, "dynamic").sql for value in args.values]
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


_PARTS = ("year", "quarter", "month", "week_of_year", "week", "day", "dayofyear", "hour", "minute", "second",
          "millisecond", "microsecond", "nanosecond")  # fmt: skip


def _unit(args: Arguments, index: int) -> str:
    unit = str(args.constant(index, "the unit")).lower()
    unit = {"dayofyear": "dayofyear", "weekofyear": "week_of_year"}.get(
        unit, unit.removesuffix("s") if unit != "s" else unit
    )
    if unit not in _PARTS:
        raise args.error(f"{args.name} knows these units: {', '.join(_PARTS)}", index)
    return unit


def _datetime_part(args: Arguments) -> Value:
    return Value(cast(call(f"tide_part_{_unit(args, 0)}", args.as_type(1, "datetime").sql), "int"), "int")


def _datetime_diff(args: Arguments) -> Value:
    unit = _unit(args, 0)
    return Value(call(f"tide_diff_{unit}", args.as_type(1, "datetime").sql, args.as_type(2, "datetime").sql), "long")


def _datetime_add(args: Arguments) -> Value:
    unit = _unit(args, 0)
    amount, time = args.as_type(1, "long"), args.as_type(2, "datetime")
    if amount.is_constant and time.is_constant and amount.constant is not None and time.constant is not None:
        return literal(_added(time.constant, unit, amount.constant), "datetime")
    return Value(call(f"tide_add_{unit}", time.sql, amount.sql), "datetime")


def _added(time: datetime, unit: str, amount: int) -> datetime:
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
    if months:
        total = time.year * 12 + time.month - 1 + months * amount
        year, month = total // 12, total % 12 + 1
        return time.replace(year=year, month=month, day=min(time.day, calendar.monthrange(year, month)[1]))
    seconds = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}.get(unit)
    if seconds:
        return time + timedelta(seconds=seconds * amount)
    return time + timedelta(
        microseconds={"millisecond": 1000 * amount, "microsecond": amount}.get(unit, amount // 1000)
    )


def _format_datetime(args: Arguments) -> Value:
    return Value(call("tide_format_datetime", args.as_type(0, "datetime").sql, args.as_type(1, "text").sql), "string")


def _format_timespan(args: Arguments) -> Value:
    return Value(call("tide_format_timespan", args.as_type(0, "timespan").sql, args.as_type(1, "text").sql), "string")


def _has_any_ipv4(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        subject = args.as_type(0, "text")
        options: list[exp.Expr] = []
        arrays: list[exp.Expr] = []
        for index in range(1, len(args)):
            value = args[index]
            if value.type == "dynamic" and value.is_constant:
                options += [text_literal(str(item)) for item in value.constant or []]
            elif value.type == "dynamic":
                arrays.append(value.sql)
            else:
                options.append(args.as_type(index, "text").sql)
        parts = [call(target, subject.sql, option) for option in options]
        parts += [call(f"{target}_of", subject.sql, array) for array in arrays]
        return Value(any_of(parts), "bool")

    return rule


def _has_any_index(args: Arguments) -> Value:
    """Give the place of the first word that a text has, or -1."""
    subject, words = args.as_type(0, "text"), args.constant(1, "the list")
    if not isinstance(words, list):
        raise args.error("has_any_index needs an array", 1, kind="type")
    ifs = [
        exp.If(this=call("tide_has", subject.sql.copy(), text_literal(str(word))), true=exp.Literal.number(at))
        for at, word in enumerate(words)
    ]
    none = exp.Neg(this=exp.Literal.number(1))
    return Value(cast(exp.Case(ifs=ifs, default=none) if ifs else none, "long"), "long")


def _ipv4_in_any(args: Arguments) -> Value:
    subject = args.as_type(0, "text")
    parts: list[exp.Expr] = []
    for index in range(1, len(args)):
        value = args[index]
        if value.type == "dynamic" and value.is_constant:
            parts += [
                call("tide_ipv4_is_in_range", subject.sql, text_literal(str(item))) for item in value.constant or []
            ]
        elif value.type == "dynamic":
            parts.append(call("tide_ipv4_is_in_any", subject.sql, value.sql))
        else:
            parts.append(call("tide_ipv4_is_in_range", subject.sql, args.as_type(index, "text").sql))
    return Value(any_of(parts), "bool")


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


def _ingestion_time(args: Arguments) -> Value:
    """Give the column of that name: a lake keeps no such time by itself, for merging extents would lose it."""
    found = args.scope.column("ingestion_time")
    if found is None:
        raise args.scope.error(
            args.at,
            "ingestion_time() is a table's column 'ingestion_time', and there is none here",
            kind="unknown_name",
            name="ingestion_time",
            tables=",".join(args.scope.tables),
        )
    return found if found.type == "datetime" else convert(found, "datetime")


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
    "tostring": (1, 1, _to("string"), "string"), "tolong": (1, 1, _to("long"), "long"),
    "toint": (1, 1, _to("int"), "int"), "toreal": (1, 1, _to("real"), "real"),
    "todouble": (1, 1, _to("real"), "real"), "todecimal": (1, 1, _to("decimal"), "decimal"),
    "tobool": (1, 1, _to("bool"), "bool"), "toboolean": (1, 1, _to("bool"), "bool"),
    "todatetime": (1, 1, _to("datetime"), "datetime"), "totimespan": (1, 1, _to("timespan"), "timespan"),
    "totime": (1, 1, _to("timespan"), "timespan"), "toguid": (1, 1, _to("guid"), "guid"),
    "todynamic": (1, 1, _to_dynamic, "dynamic"), "toobject": (1, 1, _to_dynamic, "dynamic"),
    "parse_json": (1, 1, _to_dynamic, "dynamic"), "parsejson": (1, 1, _to_dynamic, "dynamic"),
    "strcat": (1, 64, _strcat, "string"), "strcat_delim": (2, 64, _strcat_delim, "string"),
    "isempty": (1, 1, _is_empty, "bool"), "isnotempty": (1, 1, _negated(_is_empty), "bool"),
    "notempty": (1, 1, _negated(_is_empty), "bool"), "isnull": (1, 1, _is_null, "bool"),
    "isnotnull": (1, 1, _negated(_is_null), "bool"), "notnull": (1, 1, _negated(_is_null), "bool"),
    "not": (1, 1, _not, "bool"), "iff": (3, 3, _iff, "of its branches"), "iif": (3, 3, _iff, "of its branches"),
    "case": (3, 10_000, _case, "of its branches"), "coalesce": (1, 64, _coalesce, "of its arguments"),
    "max_of": (1, 64, _extreme("tide_max_of"), "of its arguments"),
    "min_of": (1, 64, _extreme("tide_min_of"), "of its arguments"), "now": (0, 1, _now, "datetime"),
    "ago": (1, 1, _ago, "datetime"), "startofday": (1, 2, _start_of("day"), "datetime"),
    "startofweek": (1, 2, _start_of("week"), "datetime"), "startofmonth": (1, 2, _start_of("month"), "datetime"),
    "startofyear": (1, 2, _start_of("year"), "datetime"), "endofday": (1, 2, _end_of("day"), "datetime"),
    "endofweek": (1, 2, _end_of("week"), "datetime"), "endofmonth": (1, 2, _end_of("month"), "datetime"),
    "endofyear": (1, 2, _end_of("year"), "datetime"), "bin": (2, 2, _bin, "of its argument"),
    "floor": (1, 2, _bin, "of its argument"), "bin_at": (3, 3, _bin_at, "of its argument"),
    "round": (1, 2, _round, "real"), "abs": (1, 1, _keeps_type("tide_abs"), "of its argument"),
    "sign": (1, 1, _sign, "real"), "ceiling": (1, 1, _ceiling, "of its argument"),
    "split": (2, 3, _split, "dynamic"), "extract": (3, 4, _extract, "string"),
    "extract_all": (2, 3, _extract_all, "dynamic"), "extractall": (2, 3, _extract_all, "dynamic"),
    "extract_json": (2, 3, _extract_json, "string"), "extractjson": (2, 3, _extract_json, "string"),
    "substring": (2, 3, _substring, "string"), "indexof_regex": (2, 5, _indexof("tide_indexof_regex"), "long"),
    "indexof": (2, 5, _indexof("tide_indexof_from"), "long"), "hash": (1, 2, _hash, "long"),
    "gettype": (1, 1, _gettype, "string"), "make_string": (1, 64, _make_string, "string"),
    "bag_has_key": (2, 2, _bag_has_key, "bool"), "bag_remove_keys": (2, 2, _bag_remove_keys, "dynamic"),
    "datetime_utc_to_local": (2, 2, _at_zone("tide_utc_to_local"), "datetime"),
    "datetime_local_to_utc": (2, 2, _at_zone("tide_local_to_utc"), "datetime"),
    "replace_strings": (3, 3, _replace_strings, "string"), "pack": (2, 254, _pack, "dynamic"),
    "bag_pack": (2, 254, _pack, "dynamic"), "pack_dictionary": (2, 254, _pack, "dynamic"),
    "pack_array": (1, 254, _pack_array, "dynamic"), "set_has_element": (2, 2, _set_has_element, "bool"),
    "array_iff": (3, 3, _array_iff, "dynamic"), "array_iif": (3, 3, _array_iff, "dynamic"),
    "range": (2, 3, _range, "dynamic"), "datetime_part": (2, 2, _datetime_part, "int"),
    "datepart": (2, 2, _datetime_part, "int"), "datetime_diff": (3, 3, _datetime_diff, "long"),
    "datetime_add": (3, 3, _datetime_add, "datetime"), "format_datetime": (2, 2, _format_datetime, "string"),
    "format_timespan": (2, 2, _format_timespan, "string"), "ingestion_time": (0, 0, _ingestion_time, "datetime"),
    "rand": (0, 1, _rand, "real"), "assert": (2, 2, _assert, "bool"),
    "has_any_index": (2, 2, _has_any_index, "long"),
    "has_any_ipv4": (2, 64, _has_any_ipv4("tide_has_ipv4"), "bool"),
    "has_any_ipv4_prefix": (2, 64, _has_any_ipv4("tide_has_ipv4_prefix"), "bool"),
    "ipv4_is_in_any_range": (2, 64, _ipv4_in_any, "bool"), "around": (3, 3, _around, "bool"), "pi": (0, 0, _pi, "real"),
    "current_database": (0, 0, _constant_text("default"), "string"),
    "current_cluster_endpoint": (0, 0, _constant_text(""), "string"),
}  # fmt: skip

FUNCTIONS: Mapping[str, ScalarFunction] = {
    **_read_plain(),
    **PACKED,
    **VARIED,
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
