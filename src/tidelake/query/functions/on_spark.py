"""Write the portable functions in Spark's SQL, where a dynamic value is VARIANT.

It does not run SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tidelake.query.functions import sized
from tidelake.query.functions.patterns import (
    EDGE_AFTER,
    EDGE_BEFORE,
    LETTER,
    java_format_of,
    path_ways,
    term_pattern,
)
from tidelake.query.functions.templates import Writer, expanded, literal_text, merged, writers

LET = "transform(array(%s), tide_v -> %s)[0]"
ORIGIN_US = 62_135_596_800_000_000  # bins of time are counted from the year 1

_ITEMS = (
    "CASE WHEN @ IS NULL THEN array(CAST(NULL AS VARIANT)) "
    "WHEN startswith(schema_of_variant(@), 'ARRAY') THEN try_cast(@ AS ARRAY<VARIANT>)"
)
_WHOLE = (
    "CASE WHEN regexp_like(@, '^\\\\s*0[xX]') THEN try_cast(conv(substring(trim(@), 3), 16, 10) AS BIGINT) "
    "WHEN regexp_like(@, '[.eE]') THEN try_cast(try_cast(@ AS DOUBLE) AS BIGINT) ELSE try_cast(trim(@) AS BIGINT) END"
)
_TIME = (
    "CASE WHEN regexp_like(@, '^\\\\s*\\\\d\\\\d\\\\d\\\\d(-\\\\d\\\\d?(-\\\\d.*)?)?\\\\s*$') THEN try_cast(trim(@) AS TIMESTAMP) ELSE transform(array("
    "regexp_replace(regexp_replace(trim(@), '^[A-Za-z]+,\\\\s*', ''), '\\\\s+(GMT|UTC)$', '')), tide_w -> coalesce("
    + ", ".join(
        f"try_to_timestamp(tide_w, '{shape}')"
        for shape in (
            "M/d/yyyy H:mm:ss",
            "M/d/yyyy h:mm:ss a",
            "M/d/yyyy",
            "d MMM yy H:mm:ss",
            "d MMM yy H:mm",
            "d-MMM-yy H:mm:ss",
            "d MMM yyyy H:mm:ss",
            "d MMM yyyy",
            "M-d-yyyy",
            "M-d-yyyy H:mm:ss",
            "H:mm d MMM yyyy",
            "H:mm:ss d MMM yyyy",
            "MMM d, yyyy",
            "yyyy/M/d H:mm:ss",
            "yyyy/M/d",
            "yyyyMMdd",
        )
    )
    + "))[0] END"
)
_SPAN_TEXT = (
    "CASE WHEN @ IS NULL THEN NULL ELSE concat(CASE WHEN @ < 0 THEN '-' ELSE '' END, "
    "CASE WHEN abs(@) >= 864000000000 THEN concat(CAST(abs(@) div 864000000000 AS STRING), '.') ELSE '' END, "
    "format_string('%02d:%02d:%02d', abs(@) div 36000000000 % 24, abs(@) div 600000000 % 60, abs(@) div 10000000 % 60), "
    "CASE WHEN abs(@) % 10000000 <> 0 THEN format_string('.%07d', abs(@) % 10000000) ELSE '' END) END"
)
_REAL_TEXT = (
    "CASE WHEN isnan(@) OR abs(@) = DOUBLE('Infinity') THEN CAST(@ AS STRING) "
    "WHEN @ = rint(@) AND abs(@) < 1e16 THEN CAST(CAST(@ AS BIGINT) AS STRING) "
    "WHEN abs(@) >= 1e-4 AND abs(@) < 1e16 THEN "
    "regexp_replace(CAST(CAST(CAST(@ AS STRING) AS DECIMAL(38, 22)) AS STRING), '0+$', '') "
    "ELSE regexp_replace(regexp_replace(regexp_replace(CAST(@ AS STRING), '[.]0E', 'E'), 'E([0-9])', 'E+$1'), "
    "'E([+-])([0-9])$', 'E$10$2') END"
)
_TIME_SHAPE = "\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'0Z'\""

_GUID_SHAPE = "^" + "-?".join(f"({'[0-9a-fA-F]' * size})" for size in (8, 4, 4, 4, 12))
_GUID = (
    f"CASE WHEN regexp_like(@, '{_GUID_SHAPE}') THEN "
    f"lower(regexp_replace(regexp_extract(@, '{_GUID_SHAPE}', 0), '{_GUID_SHAPE}', '$1-$2-$3-$4-$5')) END"
)

_TEMPLATES = r"""
contains: contains(lower({0}), lower({1}))
contains_cs: contains({0}, {1})
startswith: startswith(lower({0}), lower({1}))
startswith_cs: startswith({0}, {1})
endswith: endswith(lower({0}), lower({1}))
endswith_cs: endswith({0}, {1})
matches: regexp_like({0}, {1})
has_any_of: exists(<TEXTS 1>, w -> regexp_like({0}, concat('(?iu)', CASE WHEN regexp_like(w, '^[\\p{L}\\p{N}]') THEN '(?:^|[^\\p{L}\\p{N}])' ELSE '' END, '\\Q', w, '\\E', CASE WHEN regexp_like(w, '[\\p{L}\\p{N}]$') THEN '(?:$|[^\\p{L}\\p{N}])' ELSE '' END)))
terms: array_join(collect_list(concat(CASE WHEN regexp_like({0}, '^[\\p{L}\\p{N}]') THEN '(?:^|[^\\p{L}\\p{N}])' ELSE '' END, '\\Q', {0}, '\\E', CASE WHEN regexp_like({0}, '[\\p{L}\\p{N}]$') THEN '(?:$|[^\\p{L}\\p{N}])' ELSE '' END)), '|')
has_any_terms: regexp_like({0}, concat('(?iu)(?:', {1}, ')'))
has_all_of: forall(<TEXTS 1>, w -> regexp_like({0}, concat('(?iu)', CASE WHEN regexp_like(w, '^[\\p{L}\\p{N}]') THEN '(?:^|[^\\p{L}\\p{N}])' ELSE '' END, '\\Q', w, '\\E', CASE WHEN regexp_like(w, '[\\p{L}\\p{N}]$') THEN '(?:$|[^\\p{L}\\p{N}])' ELSE '' END)))
in_array: array_contains(<TEXTS 1>, {0})
in_array_folded: array_contains(transform(<TEXTS 1>, w -> lower(w)), lower({0}))
to_json: to_json({0})
sort_key: try_cast({0} AS STRING)
vector_to_dynamic: CAST({0} AS VARIANT)
to_string_from_dynamic: try_cast({0} AS STRING)
to_string_from_long: CAST({0} AS STRING)
to_string_from_real: let <REALTEXT>
to_string_from_bool: CAST({0} AS STRING)
to_string_from_datetime: <TIMETEXT 0>
to_string_from_timespan: let <SPANTEXT>
to_long_from_dynamic: OF[[try_cast({0} AS STRING)]][[<WHOLE>]]
to_long_from_string: let <WHOLE>
to_long_from_real: try_cast({0} AS BIGINT)
to_long_from_bool: CAST({0} AS BIGINT)
to_long_from_datetime: ((unix_micros({0}) + <ORIGIN>) * 10)
to_long_from_timespan: {0}
to_int_from_dynamic: try_cast(OF[[try_cast({0} AS STRING)]][[<WHOLE>]] AS INT)
to_int_from_string: try_cast(OF[[{0}]][[<WHOLE>]] AS INT)
to_int_from_long: try_cast({0} AS INT)
to_int_from_real: try_cast({0} AS INT)
to_int_from_bool: CAST({0} AS INT)
to_int_from_timespan: try_cast({0} AS INT)
to_real_from_dynamic: try_cast(try_cast({0} AS STRING) AS DOUBLE)
to_real_from_string: try_cast(trim({0}) AS DOUBLE)
to_real_from_bool: CAST(CAST({0} AS INT) AS DOUBLE)
to_real_from_timespan: CAST({0} AS DOUBLE)
to_real_from_datetime: CAST((unix_micros({0}) + <ORIGIN>) * 10 AS DOUBLE)
to_bool_from_dynamic: OF[[try_cast({0} AS STRING)]][[CASE lower(@) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE try_cast(@ AS DOUBLE) <> 0 END]]
to_bool_from_string: let CASE lower(trim(@)) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE try_cast(trim(@) AS DOUBLE) <> 0 END
to_bool_from_long: ({0} <> 0)
to_bool_from_real: ({0} <> 0)
to_datetime_from_string: let <TIME>
to_datetime_from_dynamic: OF[[try_cast({0} AS STRING)]][[<TIME>]]
to_datetime_from_long: timestamp_micros(({0}) div 10 - <ORIGIN>)
to_datetime_from_real: timestamp_micros(CAST({0} AS BIGINT) div 10 - <ORIGIN>)
to_timespan_from_dynamic: tide_to_timespan_from_string(try_cast({0} AS STRING))
to_timespan_from_long: CAST({0} AS BIGINT)
to_timespan_from_real: CAST({0} AS BIGINT)
to_dynamic_from_string: CAST({0} AS VARIANT)
to_dynamic_from_long: CAST({0} AS VARIANT)
to_dynamic_from_real: CAST({0} AS VARIANT)
to_dynamic_from_bool: CAST({0} AS VARIANT)
to_dynamic_from_datetime: CAST(<TIMETEXT 0> AS VARIANT)
to_dynamic_from_timespan: CAST(OF[[{0}]][[<SPANTEXT>]] AS VARIANT)
to_guid_from_string: let <GUID>
to_guid_from_dynamic: OF[[try_cast({0} AS STRING)]][[<GUID>]]
to_micros: unix_micros({0})
items_bag: let <ITEMS> WHEN startswith(schema_of_variant(@), 'OBJECT') THEN transform(map_entries(try_cast(@ AS MAP<STRING, VARIANT>)), e -> to_variant_object(map(e.key, e.value))) ELSE array(@) END
items_array: let <ITEMS> WHEN startswith(schema_of_variant(@), 'OBJECT') THEN transform(map_entries(try_cast(@ AS MAP<STRING, VARIANT>)), e -> CAST(array(CAST(e.key AS VARIANT), e.value) AS VARIANT)) ELSE array(@) END
list_length: CAST(size({0}) AS BIGINT)
indexes: OF[[CAST({0} AS BIGINT)]][[CASE WHEN @ <= 0 THEN array() ELSE sequence(0L, @ - 1) END]]
explode: explode({0})
arg_max: coalesce(max_by({0}, {1}), first({0}))
arg_min: coalesce(min_by({0}, {1}), first({0}))
any: any_value({0}, true)
stdev: stddev_samp({0})
stdevp: stddev_pop({0})
variance: var_samp({0})
variancep: var_pop({0})
covariance: covar_samp({0}, {1})
covariancep: covar_pop({0}, {1})
make_list_with_nulls: CAST(transform(collect_list(struct({0} AS v)), s -> s.v) AS VARIANT)
all_and: bit_and({0})
all_or: bit_or({0})
all_xor: bit_xor({0})
make_set: CAST(slice(sort_array(collect_set({0})), 1, CAST({1|1048576} AS INT)) AS VARIANT)
make_set_of_datetime: CAST(slice(sort_array(collect_set(<TIMETEXT 0>)), 1, CAST({1|1048576} AS INT)) AS VARIANT)
make_set_of_dynamic: CAST(slice(transform(sort_array(array_distinct(flatten(collect_list(CASE WHEN startswith(schema_of_variant({0}), 'ARRAY') THEN transform(try_cast({0} AS ARRAY<VARIANT>), e -> to_json(e)) ELSE array(to_json({0})) END)))), e -> parse_json(e)), 1, CAST({1|1048576} AS INT)) AS VARIANT)
make_list: CAST(slice(collect_list({0}), 1, CAST({1|1048576} AS INT)) AS VARIANT)
make_list_of_datetime: CAST(slice(collect_list(<TIMETEXT 0>), 1, CAST({1|1048576} AS INT)) AS VARIANT)
make_list_of_dynamic: CAST(slice(flatten(collect_list(<ASLIST 0>)), 1, CAST({1|1048576} AS INT)) AS VARIANT)
make_list_whole: CAST(collect_list({0}) AS VARIANT)
make_bag: coalesce(to_variant_object(aggregate(collect_list(try_cast({0} AS MAP<STRING, VARIANT>)), CAST(map() AS MAP<STRING, VARIANT>), (a, e) -> map_concat(map_filter(a, (k, v) -> NOT map_contains_key(e, k)), e))), parse_json('{}'))
strcat: concat({*})
strcat_delim: concat_ws({*})
strlen: CAST(length(coalesce({0}, '')) AS BIGINT)
string_size: CAST(octet_length(coalesce({0}, '')) AS BIGINT)
lower: lower({0})
upper: upper({0})
reverse: reverse({0})
replace: replace({0}, {1}, {2})
translate: translate({2}, {0}, CASE WHEN {1} = '' THEN '' ELSE rpad({1}, length({0}), right({1}, 1)) END)
trim: regexp_replace(regexp_replace({1}, concat('^(?:', {0}, ')'), ''), concat('(?:', {0}, ')$'), '')
trim_start: regexp_replace({1}, concat('^(?:', {0}, ')'), '')
trim_end: regexp_replace({1}, concat('(?:', {0}, ')$'), '')
strrep: array_join(array_repeat({0}, CAST(least({1}, 1024) AS INT)), {2|''})
base64_encode: base64(encode({0}, 'UTF-8'))
md5: md5({0})
sha1: sha1({0})
sha256: sha2({0}, 256)
regex_quote: regexp_replace({0}, '([\\\\.^$|?*+()\\[\\]\\{\\}])', '\\\\$1')
is_ascii: (octet_length({0}) = length({0}))
is_utf8: TRUE
strcmp: CAST(CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 ELSE 0 END AS BIGINT)
substring: substring({0}, CAST({1} + 1 AS INT), CAST({2|2147483647} AS INT))
substring_from: let substring(@, CAST(CASE WHEN {1} < 0 THEN greatest(length(@) + {1}, 0) ELSE {1} END + 1 AS INT), CAST(greatest({2|2147483647}, 0) AS INT))
extract: coalesce(regexp_extract({2}, {0}, CAST({1} AS INT)), '')
extract_group: CAST(regexp_extract_all({2}, {0}, CAST({1} AS INT)) AS VARIANT)
array_length: CAST(size(try_cast({0} AS ARRAY<VARIANT>)) AS BIGINT)
array_join: array_join(<TEXTS 0>, {1})
array_reverse: CAST(reverse(<LIST 0>) AS VARIANT)
array_sum: aggregate(<TEXTS 0>, 0D, (a, e) -> a + coalesce(try_cast(e AS DOUBLE), 0D))
array_sort_asc: OF[[<LISTORNULL 0>]][[CASE WHEN @ IS NOT NULL THEN CAST(concat(transform(sort_array(transform(filter(@, e -> <NUMERIC>), e -> named_struct('k', try_cast(e AS DOUBLE), 'v', to_json(e)))), s -> parse_json(s.v)), transform(sort_array(transform(filter(@, e -> schema_of_variant(e) = 'STRING'), e -> try_cast(e AS STRING))), s -> CAST(s AS VARIANT)), filter(@, e -> NOT <NUMERIC> AND schema_of_variant(e) NOT IN ('STRING', 'VOID')), filter(@, e -> coalesce(schema_of_variant(e), 'VOID') = 'VOID')) AS VARIANT) END]]
array_sort_desc: OF[[<LISTORNULL 0>]][[CASE WHEN @ IS NOT NULL THEN CAST(concat(transform(sort_array(transform(filter(@, e -> <NUMERIC>), e -> named_struct('k', try_cast(e AS DOUBLE), 'v', to_json(e))), false), s -> parse_json(s.v)), transform(sort_array(transform(filter(@, e -> schema_of_variant(e) = 'STRING'), e -> try_cast(e AS STRING)), false), s -> CAST(s AS VARIANT)), filter(@, e -> NOT <NUMERIC> AND schema_of_variant(e) NOT IN ('STRING', 'VOID')), filter(@, e -> coalesce(schema_of_variant(e), 'VOID') = 'VOID')) AS VARIANT) END]]
array_index_of: CAST(coalesce(array_position(<TEXTS 0>, CAST({1} AS STRING)), 0) - 1 AS BIGINT)
array_slice: OF[[<LISTORNULL 0>]][[CAST(slice(@, CAST(CASE WHEN {1} < 0 THEN greatest(size(@) + {1}, 0) ELSE {1} END + 1 AS INT), CAST(greatest(CASE WHEN {2} < 0 THEN size(@) + {2} ELSE {2} END - CASE WHEN {1} < 0 THEN greatest(size(@) + {1}, 0) ELSE {1} END + 1, 0) AS INT)) AS VARIANT)]]
bag_keys: CAST(map_keys(try_cast({0} AS MAP<STRING, VARIANT>)) AS VARIANT)
bag_has_key: coalesce(array_contains(map_keys(try_cast({0} AS MAP<STRING, VARIANT>)), {1}), FALSE)
prefix_keys: to_variant_object(transform_keys(try_cast({0} AS MAP<STRING, VARIANT>), (k, v) -> concat({1}, k)))
bag_remove_keys: to_variant_object(map_filter(try_cast({0} AS MAP<STRING, VARIANT>), (k, v) -> NOT array_contains(<TEXTS 1>, k)))
bag_filled: to_variant_object(map_filter(try_cast({0} AS MAP<STRING, VARIANT>), (k, v) -> v IS NOT NULL AND NOT is_variant_null(v) AND coalesce(try_cast(v AS STRING), '-') <> ''))
sqrt: CASE WHEN {0} >= 0 THEN sqrt({0}) END
exp: exp({0})
exp2: pow(2, {0})
exp10: pow(10, {0})
ln: CASE WHEN {0} > 0 THEN ln({0}) END
log2: CASE WHEN {0} > 0 THEN log2({0}) END
log10: CASE WHEN {0} > 0 THEN log10({0}) END
pow: pow({0}, {1})
sin: sin({0})
cos: cos({0})
tan: tan({0})
asin: CASE WHEN abs({0}) <= 1 THEN asin({0}) END
acos: CASE WHEN abs({0}) <= 1 THEN acos({0}) END
atan: atan({0})
atan2: atan2({0}, {1})
cot: cot({0})
degrees: degrees({0})
radians: radians({0})
isnan: isnan({0})
isinf: (abs({0}) = DOUBLE('Infinity'))
isfinite: (abs({0}) < DOUBLE('Infinity'))
rand: rand()
new_guid: uuid()
long_pairs: try_cast({0} AS ARRAY<ARRAY<BIGINT>>)
pair_item: get({0}, CAST({1} AS INT))
round: round({0}, {1})
abs: abs({0})
sign: CAST(sign({0}) AS DOUBLE)
ceiling: CAST(ceil({0}) AS DOUBLE)
bit_and: ({0} & {1})
bit_or: ({0} | {1})
bit_xor: ({0} ^ {1})
bit_not: (~{0})
shift_left: CASE WHEN {1} >= 0 THEN shiftleft(CAST({0} AS BIGINT), CAST({1} % 64 AS INT)) END
shift_right: CASE WHEN {1} >= 0 THEN shiftright(CAST({0} AS BIGINT), CAST({1} % 64 AS INT)) END
bit_count: CAST(bit_count(CAST({0} AS BIGINT)) AS BIGINT)
divide: (CAST({0} AS DOUBLE) * CASE WHEN {1} = 0 THEN DOUBLE('Infinity') ELSE 1D END / CASE WHEN {1} = 0 THEN 1D ELSE CAST({1} AS DOUBLE) END)
divide_whole: CASE WHEN {1} <> 0 THEN (({0}) div ({1})) END
modulo: CASE WHEN {1} <> 0 THEN pmod({0}, abs({1})) END
max_of: greatest({*})
min_of: least({*})
bin_long: CASE WHEN {1} <> 0 THEN (({0}) - pmod({0}, {1})) END
bin_real: (floor(({0}) / ({1})) * ({1}))
bin_datetime: timestamp_micros((unix_micros({0}) + <ORIGIN>) div greatest(({1}) div 10, 1) * greatest(({1}) div 10, 1) - <ORIGIN>)
bin_at_datetime: timestamp_micros(unix_micros({2}) + CAST(floor((unix_micros({0}) - unix_micros({2})) / (({1}) / 10)) AS BIGINT) * (({1}) div 10))
bin_at_long: (({2}) + CAST(floor((({0}) - ({2})) / ({1})) AS BIGINT) * ({1}))
bin_at_real: (({2}) + floor((({0}) - ({2})) / ({1})) * ({1}))
bin_index_datetime: CAST(floor((unix_micros({0}) - unix_micros({1})) / (({2}) / 10)) AS BIGINT)
bin_index_long: CAST(floor((({0}) - ({1})) / ({2})) AS BIGINT)
bin_index_real: CAST(floor((({0}) - ({1})) / ({2})) AS BIGINT)
bin_count_datetime: CAST(greatest(ceil((unix_micros({1}) - unix_micros({0})) / (({2}) / 10)), 0) AS BIGINT)
bin_count_long: CAST(greatest(ceil((({1}) - ({0})) / ({2})), 0) AS BIGINT)
bin_count_real: CAST(greatest(ceil((({1}) - ({0})) / ({2})), 0) AS BIGINT)
series: OF[[map_from_entries(collect_list(struct({0}, {1})))]][[CAST(transform(OF2[[{2}]], i -> coalesce(element_at(@, i), {3})) AS VARIANT)]]
series_axis_datetime: CAST(transform(OF2[[{1}]], i -> date_format(timestamp_micros(unix_micros({0}) + i * (({2}) div 10)), <TIMESHAPE>)) AS VARIANT)
series_axis_long: CAST(transform(OF2[[{1}]], i -> ({0}) + i * ({2})) AS VARIANT)
series_axis_real: CAST(transform(OF2[[{1}]], i -> ({0}) + i * ({2})) AS VARIANT)
add_ticks: timestamp_micros(unix_micros({0}) + CAST(floor(({1}) / 10) AS BIGINT))
ticks_between: ((unix_micros({0}) - unix_micros({1})) * 10)
start_of_day: timestampadd(DAY, {1}, date_trunc('DAY', {0}))
start_of_week: timestampadd(DAY, ({1}) * 7 - 1, date_trunc('WEEK', timestampadd(DAY, 1, {0})))
start_of_month: timestampadd(MONTH, {1}, date_trunc('MONTH', {0}))
start_of_year: timestampadd(YEAR, {1}, date_trunc('YEAR', {0}))
dayofweek: (CAST(dayofweek({0}) - 1 AS BIGINT) * 864000000000)
dayofmonth: day({0})
dayofyear: dayofyear({0})
hourofday: hour({0})
monthofyear: month({0})
year: year({0})
weekofyear: weekofyear({0})
from_unix_seconds: timestamp_micros(CAST(CASE WHEN {0} BETWEEN -62135596800 AND 253402300799 THEN ({0}) * 1000000 END AS BIGINT))
from_unix_millis: timestamp_micros(CAST(CASE WHEN {0} BETWEEN -62135596800000 AND 253402300799999 THEN ({0}) * 1000 END AS BIGINT))
from_unix_micros: timestamp_micros(CAST(CASE WHEN {0} BETWEEN -62135596800000000 AND 253402300799999999 THEN {0} END AS BIGINT))
from_unix_nanos: timestamp_micros(CAST({0} AS BIGINT) div 1000)
utc_to_local: from_utc_timestamp({0}, {1})
local_to_utc: OF[[to_utc_timestamp({0}, {1})]][[timestamp_micros(unix_micros(@) - (unix_micros(from_utc_timestamp(@, {1})) - unix_micros({0})))]]
make_datetime: try_make_timestamp(CAST({0} AS INT), CAST({1} AS INT), CAST({2} AS INT), CAST({3|0} AS INT), CAST({4|0} AS INT), CAST({5|0} AS DECIMAL(16, 6)))
to_hex: OF[[lower(hex(CAST({0} AS BIGINT)))]][[CASE WHEN length(@) < {1|0} THEN lpad(@, CAST({1|0} AS INT), '0') ELSE @ END]]
part_year: CAST(year({0}) AS BIGINT)
part_quarter: CAST(quarter({0}) AS BIGINT)
part_month: CAST(month({0}) AS BIGINT)
part_week_of_year: CAST(weekofyear({0}) AS BIGINT)
part_week: CAST(weekofyear({0}) AS BIGINT)
part_day: CAST(day({0}) AS BIGINT)
part_dayofyear: CAST(dayofyear({0}) AS BIGINT)
part_hour: CAST(hour({0}) AS BIGINT)
part_minute: CAST(minute({0}) AS BIGINT)
part_second: CAST(second({0}) AS BIGINT)
part_millisecond: (unix_micros({0}) div 1000 % 1000)
part_microsecond: (unix_micros({0}) % 1000000)
part_nanosecond: (unix_micros({0}) % 1000000 * 1000)
diff_year: CAST(year({0}) - year({1}) AS BIGINT)
diff_quarter: CAST((year({0}) - year({1})) * 4 + quarter({0}) - quarter({1}) AS BIGINT)
diff_month: CAST((year({0}) - year({1})) * 12 + month({0}) - month({1}) AS BIGINT)
diff_week: (timestampdiff(DAY, date_trunc('WEEK', timestampadd(DAY, 1, {1})), date_trunc('WEEK', timestampadd(DAY, 1, {0}))) div 7)
diff_day: CAST(datediff({0}, {1}) AS BIGINT)
diff_hour: timestampdiff(HOUR, date_trunc('HOUR', {1}), date_trunc('HOUR', {0}))
diff_minute: timestampdiff(MINUTE, date_trunc('MINUTE', {1}), date_trunc('MINUTE', {0}))
diff_second: timestampdiff(SECOND, date_trunc('SECOND', {1}), date_trunc('SECOND', {0}))
diff_millisecond: (unix_micros({0}) div 1000 - unix_micros({1}) div 1000)
diff_microsecond: (unix_micros({0}) - unix_micros({1}))
diff_nanosecond: ((unix_micros({0}) - unix_micros({1})) * 1000)
add_year: timestampadd(YEAR, {1}, {0})
add_quarter: timestampadd(QUARTER, {1}, {0})
add_month: timestampadd(MONTH, {1}, {0})
add_week: timestampadd(WEEK, {1}, {0})
add_day: timestampadd(DAY, {1}, {0})
add_hour: timestampadd(HOUR, {1}, {0})
add_minute: timestampadd(MINUTE, {1}, {0})
add_second: timestampadd(SECOND, {1}, {0})
add_millisecond: timestampadd(MILLISECOND, {1}, {0})
add_microsecond: timestampadd(MICROSECOND, {1}, {0})
range_long: CAST(CASE WHEN (({1}) - ({0})) * sign({2}) < 0 THEN array() ELSE sequence(CAST({0} AS BIGINT), CASE WHEN (CAST({1} AS DOUBLE) - ({0})) / ({2}) >= 1048576 THEN CAST({0} AS BIGINT) + CAST({2} AS BIGINT) * 1048575 ELSE CAST({1} AS BIGINT) END, CAST({2} AS BIGINT)) END AS VARIANT)
range_datetime: CAST(transform(OF2[[least(CAST(floor((unix_micros({1}) - unix_micros({0})) / (({2}) / 10)) AS BIGINT) + 1, 1048576)]], i -> date_format(timestamp_micros(unix_micros({0}) + i * (({2}) div 10)), <TIMESHAPE>)) AS VARIANT)
range_real: CAST(transform(OF2[[least(CAST(floor((({1}) - ({0})) / ({2})) AS BIGINT) + 1, 1048576)]], i -> ({0}) + i * ({2})) AS VARIANT)
type_of: OF[[schema_of_variant({0})]][[CASE WHEN startswith(@, 'OBJECT') THEN 'dictionary' WHEN startswith(@, 'ARRAY') THEN 'array' WHEN @ = 'STRING' THEN 'string' WHEN @ = 'BOOLEAN' THEN 'bool' WHEN @ = 'BIGINT' THEN 'long' WHEN @ = 'VOID' OR @ IS NULL THEN 'null' ELSE 'double' END]]
make_timespan: (({0}) * 36000000000 + ({1}) * 600000000 + CAST(({2|0}) * 10000000 AS BIGINT))
parse_version: CAST(tide_version_text({0}) AS DECIMAL(38, 0))
"""

_MACROS = {
    "<ITEMS>": _ITEMS,
    "<WHOLE>": _WHOLE,
    "<TIME>": _TIME,
    "<NUMERIC>": "regexp_like(schema_of_variant(e), '^(BIGINT|DOUBLE|DECIMAL|FLOAT|INT|SMALLINT|TINYINT)')",
    "<GUID>": _GUID,
    "<REALTEXT>": _REAL_TEXT,
    "<SPANTEXT>": _SPAN_TEXT,
    "<ORIGIN>": str(ORIGIN_US),
    "<TIMESHAPE>": _TIME_SHAPE,
    "<TEXTS #>": "transform(coalesce(try_cast({#} AS ARRAY<VARIANT>), array()), e -> try_cast(e AS STRING))",
    "<ASLIST #>": "CASE WHEN {#} IS NULL THEN NULL WHEN startswith(schema_of_variant({#}), 'ARRAY') THEN try_cast({#} AS ARRAY<VARIANT>) ELSE array({#}) END",
    "<LIST #>": "coalesce(try_cast({#} AS ARRAY<VARIANT>), array())",
    "<LISTORNULL #>": "try_cast({#} AS ARRAY<VARIANT>)",
    "<TIMETEXT #>": f"date_format({{#}}, {_TIME_SHAPE})",
}
_FLAT = "v -> CASE WHEN startswith(schema_of_variant(v), 'ARRAY') THEN try_cast(v AS ARRAY<VARIANT>) ELSE array(v) END"
_COUNTED = r"(CASE WHEN (\1) <= 0 THEN CAST(array() AS ARRAY<BIGINT>) ELSE sequence(0L, CAST((\1) - 1 AS BIGINT)) END)"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _not_null(sql: str) -> str:
    """Give a variant with JSON's null as SQL's."""
    return LET % (sql, "CASE WHEN is_variant_null(tide_v) THEN NULL ELSE tide_v END")


def _parse_json(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if (written := literal_text(nodes[0])) is not None:
        if not written.strip():
            return "CAST(NULL AS VARIANT)"
        return _not_null(f"coalesce(try_parse_json({texts[0]}), CAST({texts[0]} AS VARIANT))")
    parsed = "CASE WHEN trim(tide_v) <> '' THEN coalesce(try_parse_json(tide_v), CAST(tide_v AS VARIANT)) END"
    return _not_null(LET % (texts[0], parsed))


def _at(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    index = f"CAST(CASE WHEN {texts[1]} < 0 THEN size(tide_v) + {texts[1]} ELSE {texts[1]} END AS INT)"
    return _not_null(LET % (f"try_cast({texts[0]} AS ARRAY<VARIANT>)", f"get(tide_v, {index})"))


def _key(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return _not_null(f"element_at(try_cast({texts[0]} AS MAP<STRING, VARIANT>), {texts[1]})")


def _item(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return _not_null(f"get({texts[0]}, CAST({texts[1]} AS INT))")


def _get(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    path = literal_text(nodes[1])
    assert path is not None, "a path is a literal"
    ways = [quoted(_json_path(way)) for way in path_ways(path)]
    if len(ways) == 1:
        return _not_null(f"try_variant_get({texts[0]}, {ways[0]}, 'variant')")
    parts = ", ".join(f"try_variant_get(tide_v, {way}, 'variant')" for way in ways)
    return _not_null(LET % (texts[0], f"coalesce({parts})"))


def _json_path(way: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else _member(step) for step in way)


def _member(key: str) -> str:
    return f"['{key}']" if '"' in key else f'["{key}"]'


def _row(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    fields = ", ".join(f"'f{at}', {text}" for at, text in enumerate(texts))
    return f"named_struct({fields})"


def _field(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"{texts[0]}.{literal_text(nodes[1])}"


def _percentile(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"percentile_disc({texts[1]}) WITHIN GROUP (ORDER BY {texts[0]})"


def _term(*, cased: bool = False, prefix: bool = False, suffix: bool = False) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        term = literal_text(nodes[1])
        if term is not None:
            pattern = term_pattern(term, cased=cased, prefix=prefix, suffix=suffix).replace("(?i)", "(?iu)", 1)
            return f"regexp_like({texts[0]}, {quoted(pattern)})"
        edges = {"^%s": "" if suffix else EDGE_BEFORE, "%s$": "" if prefix else EDGE_AFTER}
        before, after = (
            f"CASE WHEN regexp_like({texts[1]}, {quoted(where % LETTER)}) THEN {quoted(edge)} ELSE '' END"
            for where, edge in edges.items()
        )
        flag = "" if cased else "(?iu)"
        return rf"regexp_like({texts[0]}, concat('{flag}', {before}, '\\Q', {texts[1]}, '\\E', {after}))"

    return write


def _has_any(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    terms = [literal_text(node) or "" for node in nodes[1:]]
    pattern = "|".join(f"(?:{term_pattern(term, cased=True)})" for term in terms)
    return f"regexp_like({texts[0]}, {quoted('(?iu)' + pattern)})"


def _has_all(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    patterns = [term_pattern(literal_text(node) or "").replace("(?i)", "(?iu)", 1) for node in nodes[1:]]
    return LET % (texts[0], " AND ".join(f"regexp_like(tide_v, {quoted(pattern)})" for pattern in patterns))


def _split(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if literal_text(nodes[1]) == "":  # letters, of which Spark would add an empty one
        letters = (
            f"CASE WHEN {texts[0]} = '' THEN array('') ELSE slice(split({texts[0]}, ''), 1, length({texts[0]})) END"
        )
        return f"CAST({letters} AS VARIANT)"
    return rf"CAST(split({texts[0]}, concat('\\Q', {texts[1]}, '\\E')) AS VARIANT)"


def _replace_regex(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    new = literal_text(nodes[2])
    if new is None:
        return f"regexp_replace({texts[0]}, {texts[1]}, {texts[2]})"
    java = re.sub(r"\\(\d)", r"$\1", new.replace("$", "\\$"))
    return f"regexp_replace({texts[0]}, {texts[1]}, {quoted(java)})"


def _format_datetime(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    pattern = literal_text(nodes[1])
    shape = java_format_of(pattern) if pattern is not None else None
    if shape is not None:
        return f"date_format({texts[0]}, {quoted(shape)})"
    return f"tide_format_datetime_python(CAST(unix_micros({texts[0]}) AS STRING), {texts[1]})"


def _countof(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    kind = literal_text(nodes[2]) if len(nodes) > 2 else "normal"
    if kind == "regex":
        return f"CAST(regexp_count({texts[0]}, {texts[1]}) AS BIGINT)"
    return f"tide_countof_plain({texts[0]}, {texts[1]})"


def _indexof(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"CAST(locate({texts[1]}, {texts[0]}) - 1 AS BIGINT)"


def _lists(texts: Sequence[str]) -> list[str]:
    return [f"coalesce(try_cast({text} AS ARRAY<VARIANT>), array())" for text in texts]


def _array_concat(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"CAST(concat({', '.join(_lists(texts))}) AS VARIANT)"


def _json_texts(texts: Sequence[str]) -> list[str]:
    return [f"transform({item}, e -> to_json(e))" for item in _lists(texts)]


def _set_fold(function: str) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        first, *rest = _json_texts(texts)
        found = f"array_distinct({first})"
        for other in rest:
            found = f"{function}({found}, {other})"
        return f"CAST(transform(sort_array({found}), e -> parse_json(e)) AS VARIANT)"

    return write


def _set_equals(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    one, other = (f"sort_array(array_distinct({item}))" for item in _json_texts(texts))
    return f"({one} = {other})"


def _pack(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"to_variant_object(map({', '.join(texts)}))"


def _pack_array(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"CAST(array({', '.join(texts)}) AS VARIANT)"


def _bag_merge(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Merge bags: of a key that several have, the first counts."""
    maps = [
        f"coalesce(try_cast({text} AS MAP<STRING, VARIANT>), CAST(map() AS MAP<STRING, VARIANT>))" for text in texts
    ]
    found = maps[-1]
    for text in reversed(maps[:-1]):
        found = f"map_concat(map_filter({found}, (k, v) -> NOT map_contains_key({text}, k)), {text})"
    return f"to_variant_object({found})"


def _zip(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    lists = _lists(texts)
    length = f"greatest({', '.join(f'size({item})' for item in lists)})" if len(lists) > 1 else f"size({lists[0]})"
    cells = ", ".join(f"get({item}, CAST(i AS INT))" for item in lists)
    indexes = _COUNTED.replace(r"\1", length)
    return f"CAST(transform({indexes}, i -> array({cells})) AS VARIANT)"


def _make_list_ordered(before: str, after: str, *, flat: bool = False) -> Writer:
    """Collect in the order of the last argument, a row's number; nulls are left out."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        value, limit, order = texts[0], texts[1], texts[2].split(" ASC")[0]
        pair = f"CASE WHEN {value} IS NOT NULL THEN named_struct('k', {order}, 'v', {before % value}) END"
        items = f"transform(sort_array(collect_list({pair})), s -> {after % 's.v'})"
        items = f"flatten(transform({items}, {_FLAT}))" if flat else items
        count = "1048576" if limit == "NULL" else limit
        return f"CAST(slice({items}, 1, CAST({count} AS INT)) AS VARIANT)"

    return write


def _rows_of(kind: str) -> Writer:
    """Write a long list, which stands alone in the brackets of ``in``, as a query for its values."""
    return lambda _, texts: f"SELECT explode(from_json({texts[0]}, 'array<{kind}>'))"


_WRITTEN: dict[str, Writer] = {
    "tide_texts": _rows_of("string"), "tide_longs": _rows_of("bigint"),
    "tide_parse_json": _parse_json, "tide_at": _at, "tide_key": _key, "tide_item": _item, "tide_get": _get,
    "tide_row": _row, "tide_field": _field, "tide_percentile": _percentile, "tide_has": _term(),
    "tide_has_cs": _term(cased=True), "tide_hasprefix": _term(prefix=True),
    "tide_hasprefix_cs": _term(prefix=True, cased=True), "tide_hassuffix": _term(suffix=True),
    "tide_hassuffix_cs": _term(suffix=True, cased=True), "tide_has_any": _has_any, "tide_has_all": _has_all,
    "tide_split": _split, "tide_replace_regex": _replace_regex, "tide_format_datetime": _format_datetime,
    "tide_countof": _countof, "tide_indexof": _indexof, "tide_array_concat": _array_concat,
    "tide_set_union": _set_fold("array_union"), "tide_set_intersect": _set_fold("array_intersect"),
    "tide_set_difference": _set_fold("array_except"), "tide_set_equals": _set_equals, "tide_pack": _pack,
    "tide_pack_array": _pack_array, "tide_bag_merge": _bag_merge, "tide_zip": _zip,
    "tide_make_list_ordered": _make_list_ordered("%s", "%s"),
    "tide_make_list_ordered_of_datetime": _make_list_ordered(f"date_format(%s, {_TIME_SHAPE})", "%s"),
    "tide_make_list_ordered_of_dynamic": _make_list_ordered("to_json(%s)", "parse_json(%s)", flat=True),
    "tide_make_list_ordered_whole": _make_list_ordered("to_json(%s)", "parse_json(%s)"),
}  # fmt: skip

_COUNTED_TEMPLATES = re.sub(r"OF2\[\[(.*?)\]\]", _COUNTED, _TEMPLATES)
WRITERS: dict[str, Writer] = merged(writers(expanded(_COUNTED_TEMPLATES, _MACROS, LET), LET), _WRITTEN, sized.SPARK)
