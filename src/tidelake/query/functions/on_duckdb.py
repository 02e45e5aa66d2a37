"""Write the portable functions in DuckDB's SQL, where a dynamic value is JSON.

It does not run SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidelake.query.functions import sized
from tidelake.query.functions.patterns import (
    EDGE_AFTER,
    EDGE_BEFORE,
    LETTER,
    escaped,
    path_ways,
    strftime_of,
    term_pattern,
)
from tidelake.query.functions.templates import Writer, expanded, literal_text, merged, writers

LET = "list_transform([%s], lambda tide_v: %s)[1]"
ORIGIN_US = 62_135_596_800_000_000  # bins of time are counted from the year 1

_ITEMS = "CASE WHEN @ IS NULL THEN [NULL::JSON] WHEN json_type(@) = 'ARRAY' THEN CAST(@ AS JSON[])"
_WHOLE = (
    "CASE WHEN regexp_matches(@, '^\\s*0[xX]') THEN TRY_CAST(trim(@) AS BIGINT) "
    "WHEN regexp_matches(@, '[.eE]') THEN TRY_CAST(trunc(TRY_CAST(replace(@, '_', '?') AS DOUBLE)) AS BIGINT) ELSE TRY_CAST(trim(replace(@, '_', '?')) AS BIGINT) END"
)
_TIME = (
    "CASE WHEN regexp_matches(@, '^\\s*\\d\\d\\d\\d-\\d\\d?-\\d') THEN "
    "TRY_CAST(regexp_replace(trim(@), '\\s+([+-]\\d)', '\\1') AS TIMESTAMPTZ) "
    "WHEN regexp_matches(@, '^\\s*\\d\\d\\d\\d(-\\d\\d?)?\\s*$') "
    "THEN TRY_CAST(trim(@) || CASE WHEN contains(@, '-') THEN '-01' ELSE '-01-01' END AS TIMESTAMPTZ) "
    "WHEN regexp_matches(@, '\\d') THEN TRY_CAST(try_strptime(regexp_replace(regexp_replace(trim(@), '^[A-Za-z]+,\\s*', ''), '\\s+(GMT|UTC)$', ''), "
    "['%m/%d/%Y %H:%M:%S', '%m/%d/%Y %I:%M:%S %p', '%m/%d/%Y', '%d %b %y %H:%M:%S', '%d %b %y %H:%M', '%d-%b-%y %H:%M:%S', "
    "'%m-%d-%Y', '%m-%d-%Y %H:%M:%S', '%H:%M %d %b %Y', '%H:%M:%S %d %b %Y', '%d %b %Y %H:%M:%S', '%d %b %Y', '%b %d, %Y', '%Y/%m/%d %H:%M:%S', '%Y/%m/%d', '%Y%m%d']) AS TIMESTAMPTZ) END"
)
_SPAN_TEXT = (
    "CASE WHEN @ < 0 THEN '-' ELSE '' END || CASE WHEN abs(@) >= 864000000000 THEN (abs(@) // 864000000000)::VARCHAR || '.' ELSE '' END || "
    "printf('%02d:%02d:%02d', abs(@) // 36000000000 % 24, abs(@) // 600000000 % 60, abs(@) // 10000000 % 60) || "
    "CASE WHEN abs(@) % 10000000 <> 0 THEN printf('.%07d', abs(@) % 10000000) ELSE '' END"
)
_REAL_TEXT = (
    "CASE WHEN isnan(@) THEN 'NaN' WHEN isinf(@) THEN CASE WHEN @ > 0 THEN 'Infinity' ELSE '-Infinity' END "
    "WHEN @ = trunc(@) AND abs(@) < 1e16 THEN CAST(CAST(@ AS BIGINT) AS VARCHAR) "
    "ELSE upper(regexp_replace(CAST(@ AS VARCHAR), '([.][0-9]*[1-9])0+$', '\\1')) END"  # a decimal has zeros there
)


_GUID_SHAPE = "^" + "-?".join(f"({'[0-9a-fA-F]' * size})" for size in (8, 4, 4, 4, 12))
_GUID = (
    f"CASE WHEN regexp_matches(@, '{_GUID_SHAPE}') THEN "
    f"lower(regexp_replace(regexp_extract(@, '{_GUID_SHAPE}'), '{_GUID_SHAPE}', '\\1-\\2-\\3-\\4-\\5')) END"
)

_TEMPLATES = r"""
contains: contains(lower({0}), lower({1}))
contains_cs: contains({0}, {1})
startswith: starts_with(lower({0}), lower({1}))
startswith_cs: starts_with({0}, {1})
endswith: ends_with(lower({0}), lower({1}))
endswith_cs: ends_with({0}, {1})
matches: regexp_matches({0}, {1})
has_any_of: len(list_filter(<TEXTS 1>, lambda w: regexp_matches({0}, '(?i)' || CASE WHEN regexp_matches(w, '^[\p{L}\p{N}]') THEN '(?:^|[^\p{L}\p{N}])' ELSE '' END || regexp_escape(w) || CASE WHEN regexp_matches(w, '[\p{L}\p{N}]$') THEN '(?:$|[^\p{L}\p{N}])' ELSE '' END))) > 0
terms: string_agg(CASE WHEN regexp_matches({0}, '^[\p{L}\p{N}]') THEN '(?:^|[^\p{L}\p{N}])' ELSE '' END || regexp_escape({0}) || CASE WHEN regexp_matches({0}, '[\p{L}\p{N}]$') THEN '(?:$|[^\p{L}\p{N}])' ELSE '' END, '|')
has_any_terms: regexp_matches({0}, '(?i)(?:' || {1} || ')')
has_all_of: len(list_filter(<TEXTS 1>, lambda w: NOT regexp_matches({0}, '(?i)' || CASE WHEN regexp_matches(w, '^[\p{L}\p{N}]') THEN '(?:^|[^\p{L}\p{N}])' ELSE '' END || regexp_escape(w) || CASE WHEN regexp_matches(w, '[\p{L}\p{N}]$') THEN '(?:$|[^\p{L}\p{N}])' ELSE '' END))) = 0
in_array: list_contains(<TEXTS 1>, {0})
in_array_folded: list_contains(list_transform(<TEXTS 1>, lambda w: lower(w)), lower({0}))
parse_json: let CASE WHEN trim(@) = '' THEN NULL WHEN json_valid(@) THEN nullif(json(@), 'null'::JSON) ELSE to_json(@) END
to_json: CAST({0} AS VARCHAR)
sort_key: ({0} ->> '$')
vector_to_dynamic: to_json({0})
to_string_from_dynamic: ({0} ->> '$')
to_string_from_long: CAST({0} AS VARCHAR)
to_string_from_real: let <REALTEXT>
to_string_from_bool: CAST({0} AS VARCHAR)
to_string_from_datetime: <TIMETEXT 0>
to_string_from_timespan: let <SPANTEXT>
to_long_from_dynamic: OF[[({0} ->> '$')]][[<WHOLE>]]
to_long_from_string: let <WHOLE>
to_long_from_real: TRY_CAST(trunc({0}) AS BIGINT)
to_long_from_bool: CAST({0} AS BIGINT)
to_long_from_datetime: ((epoch_us({0}) + <ORIGIN>) * 10)
to_long_from_timespan: {0}
to_int_from_dynamic: TRY_CAST(OF[[({0} ->> '$')]][[<WHOLE>]] AS INTEGER)
to_int_from_string: let TRY_CAST(<WHOLE> AS INTEGER)
to_int_from_long: TRY_CAST({0} AS INTEGER)
to_int_from_real: TRY_CAST(trunc({0}) AS INTEGER)
to_int_from_bool: CAST({0} AS INTEGER)
to_int_from_timespan: TRY_CAST({0} AS INTEGER)
to_real_from_dynamic: TRY_CAST({0} ->> '$' AS DOUBLE)
to_real_from_string: TRY_CAST(trim(replace({0}, '_', '?')) AS DOUBLE)
to_real_from_bool: CAST({0} AS DOUBLE)
to_real_from_timespan: CAST({0} AS DOUBLE)
to_real_from_datetime: CAST((epoch_us({0}) + <ORIGIN>) * 10 AS DOUBLE)
to_bool_from_dynamic: let CASE lower(@ ->> '$') WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE TRY_CAST(@ ->> '$' AS DOUBLE) <> 0 END
to_bool_from_string: let CASE lower(trim(@)) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE TRY_CAST(trim(replace(@, '_', '?')) AS DOUBLE) <> 0 END
to_bool_from_long: ({0} <> 0)
to_bool_from_real: ({0} <> 0)
to_datetime_from_string: let <TIME>
to_datetime_from_dynamic: OF[[({0} ->> '$')]][[<TIME>]]
to_datetime_from_long: make_timestamptz(({0}) // 10 - <ORIGIN>)
to_datetime_from_real: make_timestamptz(CAST({0} AS BIGINT) // 10 - <ORIGIN>)
to_timespan_from_dynamic: tide_to_timespan_from_string({0} ->> '$')
to_timespan_from_long: CAST({0} AS BIGINT)
to_timespan_from_real: CAST({0} AS BIGINT)
to_dynamic_from_string: to_json({0})
to_dynamic_from_long: to_json({0})
to_dynamic_from_real: to_json({0})
to_dynamic_from_bool: to_json({0})
to_dynamic_from_datetime: to_json(<TIMETEXT 0>)
to_dynamic_from_timespan: let to_json(<SPANTEXT>)
to_guid_from_string: let <GUID>
to_guid_from_dynamic: OF[[({0} ->> '$')]][[<GUID>]]
to_micros: epoch_us({0})
at: nullif(json_extract({0}, CASE WHEN {1} < 0 THEN '$[#' || CAST({1} AS VARCHAR) || ']' ELSE '$[' || CAST({1} AS VARCHAR) || ']' END), 'null'::JSON)
key: nullif(json_extract({0}, '/' || replace(replace({1}, '~', '~0'), '/', '~1')), 'null'::JSON)
items_bag: let <ITEMS> WHEN json_type(@) = 'OBJECT' THEN list_transform(json_keys(@), lambda k: json_object(k, json_extract(@, '/' || replace(replace(k, '~', '~0'), '/', '~1')))) ELSE [@] END
items_array: let <ITEMS> WHEN json_type(@) = 'OBJECT' THEN list_transform(json_keys(@), lambda k: to_json([to_json(k), json_extract(@, '/' || replace(replace(k, '~', '~0'), '/', '~1'))])) ELSE [@] END
list_length: CAST(len({0}) AS BIGINT)
indexes: range(0, CAST({0} AS BIGINT))
explode: unnest({0})
item: list_extract({0}, CAST({1} + 1 AS BIGINT))
row: struct_pack({*})
field: struct_extract({0}, {1})
arg_max: coalesce(arg_max({0}, {1}), first({0}))
arg_min: coalesce(arg_min({0}, {1}), first({0}))
any: any_value({0})
stdev: stddev_samp({0})
stdevp: stddev_pop({0})
variance: var_samp({0})
variancep: var_pop({0})
covariance: covar_samp({0}, {1})
covariancep: covar_pop({0}, {1})
make_list_with_nulls: coalesce(to_json(list({0})), '[]'::JSON)
percentile: quantile_disc({0}, {1})
all_and: bit_and({0})
all_or: bit_or({0})
all_xor: bit_xor({0})
make_set: to_json(list_slice(coalesce(list_sort(list(DISTINCT {0}) FILTER ({0} IS NOT NULL)), []), 1, {1|1048576}))
make_set_of_datetime: to_json(list_slice(coalesce(list_sort(list(DISTINCT <TIMETEXT 0>) FILTER ({0} IS NOT NULL)), []), 1, {1|1048576}))
make_set_of_dynamic: to_json(list_slice(list_transform(list_sort(list_distinct(flatten(coalesce(list(CASE WHEN json_type({0}) = 'ARRAY' THEN CAST(CAST({0} AS JSON[]) AS VARCHAR[]) ELSE [CAST({0} AS VARCHAR)] END) FILTER ({0} IS NOT NULL), [])))), lambda e: CAST(e AS JSON)), 1, {1|1048576}))
make_list: to_json(list_slice(coalesce(list({0}) FILTER ({0} IS NOT NULL), []), 1, {1|1048576}))
make_list_of_datetime: to_json(list_slice(coalesce(list(<TIMETEXT 0>) FILTER ({0} IS NOT NULL), []), 1, {1|1048576}))
make_list_of_dynamic: to_json(list_slice(flatten(coalesce(list(<ASLIST 0>) FILTER ({0} IS NOT NULL), [])), 1, {1|1048576}))
make_list_whole: to_json(coalesce(list({0}) FILTER ({0} IS NOT NULL), []))
make_list_ordered: to_json(list_slice(coalesce(list({0} ORDER BY {2*}) FILTER ({0} IS NOT NULL), []), 1, coalesce({1}, 1048576)))
make_list_ordered_of_dynamic: to_json(list_slice(flatten(coalesce(list(<ASLIST 0> ORDER BY {2*}) FILTER ({0} IS NOT NULL), [])), 1, coalesce({1}, 1048576)))
make_list_ordered_whole: to_json(list_slice(coalesce(list({0} ORDER BY {2*}) FILTER ({0} IS NOT NULL), []), 1, coalesce({1}, 1048576)))
make_list_ordered_of_datetime: to_json(list_slice(coalesce(list(<TIMETEXT 0> ORDER BY {2*}) FILTER ({0} IS NOT NULL), []), 1, coalesce({1}, 1048576)))
make_bag: coalesce(to_json(list_reduce(list(CAST({0} AS MAP(VARCHAR, JSON))) FILTER (json_type({0}) = 'OBJECT'), lambda a, e: map_concat(a, e))), '{}'::JSON)
strcat: concat({*})
strcat_delim: concat_ws({*})
strlen: length(coalesce({0}, ''))
string_size: strlen(coalesce({0}, ''))
lower: lower({0})
upper: upper({0})
reverse: reverse({0})
replace: replace({0}, {1}, {2})
replace_regex: regexp_replace({0}, {1}, {2}, 'g')
translate: translate({2}, {0}, CASE WHEN {1} = '' THEN '' ELSE rpad({1}, CAST(length({0}) AS INTEGER), right({1}, 1)) END)
trim: regexp_replace(regexp_replace({1}, '^(?:' || {0} || ')', ''), '(?:' || {0} || ')$', '')
trim_start: regexp_replace({1}, '^(?:' || {0} || ')', '')
trim_end: regexp_replace({1}, '(?:' || {0} || ')$', '')
strrep: array_to_string(list_transform(range(least({1}, 1024)), lambda i: {0}), {2|''})
base64_encode: to_base64(encode({0}))
md5: md5({0})
sha1: sha1({0})
sha256: sha256({0})
regex_quote: regexp_escape({0})
is_ascii: (strlen({0}) = length({0}))
is_utf8: TRUE
strcmp: CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 ELSE 0 END
substring: substring({0}, CAST({1} + 1 AS BIGINT), CAST({2|2147483647} AS BIGINT))
substring_from: let substring(@, CAST(CASE WHEN {1} < 0 THEN greatest(length(@) + {1}, 0) ELSE {1} END + 1 AS BIGINT), CAST(greatest({2|2147483647}, 0) AS BIGINT))
split: to_json(string_split({0}, {1}))
extract_group: to_json(regexp_extract_all({2}, {0}, CAST({1} AS INTEGER)))
array_length: CAST(json_array_length(CASE WHEN json_type({0}) = 'ARRAY' THEN {0} END) AS BIGINT)
array_join: array_to_string(<TEXTS 0>, {1})
array_reverse: to_json(list_reverse(<LIST 0>))
array_sum: list_sum(list_transform(<TEXTS 0>, lambda e: TRY_CAST(e AS DOUBLE)))
array_sort_asc: OF[[TRY_CAST({0} AS JSON[])]][[CASE WHEN @ IS NOT NULL THEN to_json(flatten([list_transform(list_sort(list_transform(list_filter(@, lambda e: <NUMERIC>), lambda e: {'k': TRY_CAST(e AS DOUBLE), 'v': e})), lambda s: s.v), list_sort(list_filter(@, lambda e: json_type(e) = 'VARCHAR')), list_filter(@, lambda e: NOT <NUMERIC> AND json_type(e) NOT IN ('VARCHAR', 'NULL')), list_filter(@, lambda e: coalesce(json_type(e), 'NULL') = 'NULL')])) END]]
array_sort_desc: OF[[TRY_CAST({0} AS JSON[])]][[CASE WHEN @ IS NOT NULL THEN to_json(flatten([list_transform(list_reverse_sort(list_transform(list_filter(@, lambda e: <NUMERIC>), lambda e: {'k': TRY_CAST(e AS DOUBLE), 'v': e})), lambda s: s.v), list_reverse_sort(list_filter(@, lambda e: json_type(e) = 'VARCHAR')), list_filter(@, lambda e: NOT <NUMERIC> AND json_type(e) NOT IN ('VARCHAR', 'NULL')), list_filter(@, lambda e: coalesce(json_type(e), 'NULL') = 'NULL')])) END]]
array_index_of: coalesce(list_position(<TEXTS 0>, CAST({1} AS VARCHAR)), 0) - 1
array_slice: OF[[TRY_CAST({0} AS JSON[])]][[to_json(list_slice(@, CASE WHEN {1} < 0 THEN greatest(len(@) + {1}, 0) ELSE {1} END + 1, CASE WHEN {2} < 0 THEN len(@) + {2} ELSE {2} END + 1))]]
bag_keys: to_json(json_keys(CASE WHEN json_type({0}) = 'OBJECT' THEN {0} END))
bag_has_key: coalesce(list_contains(json_keys({0}), {1}), FALSE)
prefix_keys: let CASE WHEN json_type(@) = 'OBJECT' THEN to_json(map_from_entries(list_transform(json_keys(@), lambda k: {'k': {1} || k, 'v': json_extract(@, '/' || replace(replace(k, '~', '~0'), '/', '~1'))}))) END
bag_remove_keys: let to_json(map_from_entries(list_transform(list_filter(json_keys(@), lambda k: NOT list_contains(<TEXTS 1>, k)), lambda k: {'k': k, 'v': json_extract(@, '/' || replace(replace(k, '~', '~0'), '/', '~1'))})))
bag_filled: let to_json(map_from_entries(list_transform(list_filter(json_keys(@), lambda k: coalesce(json_extract_string(@, '/' || replace(replace(k, '~', '~0'), '/', '~1')), '') <> ''), lambda k: {'k': k, 'v': json_extract(@, '/' || replace(replace(k, '~', '~0'), '/', '~1'))})))
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
isinf: isinf({0})
isfinite: isfinite({0})
rand: random()
new_guid: CAST(uuid() AS VARCHAR)
long_pairs: CAST({0} AS BIGINT[][])
pair_item: list_extract({0}, {1} + 1)
round: round({0}, CAST({1} AS INTEGER))
abs: abs({0})
sign: CAST(sign({0}) AS DOUBLE)
ceiling: ceil({0})
bit_and: ({0} & {1})
bit_or: ({0} | {1})
bit_xor: xor({0}, {1})
bit_not: (~{0})
shift_left: CASE WHEN {1} >= 0 THEN OF[[(CAST({0} AS HUGEINT) * (CAST(1 AS HUGEINT) << CAST({1} % 64 AS INTEGER))) % 18446744073709551616]][[CAST(CASE WHEN @ >= 9223372036854775808 THEN @ - 18446744073709551616 WHEN @ < -9223372036854775808 THEN @ + 18446744073709551616 ELSE @ END AS BIGINT)]] END
shift_right: CASE WHEN {1} >= 0 THEN {0} >> ({1} % 64) END
bit_count: CAST(bit_count(CAST({0} AS BIGINT)) AS BIGINT)
divide: (CAST({0} AS DOUBLE) * CASE WHEN {1} = 0 THEN CAST('inf' AS DOUBLE) ELSE 1 END / CASE WHEN {1} = 0 THEN 1 ELSE CAST({1} AS DOUBLE) END)
divide_whole: CASE WHEN {1} <> 0 THEN CAST(({0}) // ({1}) AS BIGINT) END
modulo: CASE WHEN {1} <> 0 THEN (({0}) % abs({1}) + abs({1})) % abs({1}) END
max_of: greatest({*})
min_of: least({*})
bin_long: CASE WHEN {1} <> 0 THEN (({0}) - ((({0}) % ({1})) + ({1})) % ({1})) END
bin_real: (floor(({0}) / ({1})) * ({1}))
bin_datetime: make_timestamptz(CAST((epoch_us({0}) + <ORIGIN>) // greatest(({1}) // 10, 1) * greatest(({1}) // 10, 1) - <ORIGIN> AS BIGINT))
bin_at_datetime: make_timestamptz(CAST(epoch_us({2}) + CAST(floor((epoch_us({0}) - epoch_us({2})) / (({1}) / 10.0)) AS BIGINT) * (({1}) // 10) AS BIGINT))
bin_at_long: (({2}) + CAST(floor((({0}) - ({2})) / CAST({1} AS DOUBLE)) AS BIGINT) * ({1}))
bin_at_real: (({2}) + floor((({0}) - ({2})) / ({1})) * ({1}))
bin_index_datetime: CAST(floor((epoch_us({0}) - epoch_us({1})) / (({2}) / 10.0)) AS BIGINT)
bin_index_long: CAST(floor((({0}) - ({1})) / CAST({2} AS DOUBLE)) AS BIGINT)
bin_index_real: CAST(floor((({0}) - ({1})) / ({2})) AS BIGINT)
bin_count_datetime: CAST(greatest(ceil((epoch_us({1}) - epoch_us({0})) / (({2}) / 10.0)), 0) AS BIGINT)
bin_count_long: CAST(greatest(ceil((({1}) - ({0})) / CAST({2} AS DOUBLE)), 0) AS BIGINT)
bin_count_real: CAST(greatest(ceil((({1}) - ({0})) / ({2})), 0) AS BIGINT)
series: OF[[map_from_entries(list(struct_pack(k := {0}, v := {1})))]][[to_json(list_transform(range({2}), lambda i: coalesce(@[i], {3})))]]
series_axis_datetime: to_json(list_transform(range({1}), lambda i: strftime(make_timestamptz(CAST(epoch_us({0}) + i * (({2}) // 10) AS BIGINT)), '%Y-%m-%dT%H:%M:%S.%f0Z')))
series_axis_long: to_json(list_transform(range({1}), lambda i: ({0}) + i * ({2})))
series_axis_real: to_json(list_transform(range({1}), lambda i: ({0}) + i * ({2})))
add_ticks: make_timestamptz(CAST(epoch_us({0}) + CAST(floor(({1}) / 10) AS BIGINT) AS BIGINT))
ticks_between: ((epoch_us({0}) - epoch_us({1})) * 10)
start_of_day: (date_trunc('day', {0}) + to_days(CAST({1} AS INTEGER)))
start_of_week: (date_trunc('week', {0} + INTERVAL 1 DAY) - INTERVAL 1 DAY + to_weeks(CAST({1} AS INTEGER)))
start_of_month: (date_trunc('month', {0}) + to_months(CAST({1} AS INTEGER)))
start_of_year: (date_trunc('year', {0}) + to_years(CAST({1} AS INTEGER)))
dayofweek: (CAST(dayofweek({0}) AS BIGINT) * 864000000000)
dayofmonth: CAST(day({0}) AS INTEGER)
dayofyear: CAST(dayofyear({0}) AS INTEGER)
hourofday: CAST(hour({0}) AS INTEGER)
monthofyear: CAST(month({0}) AS INTEGER)
year: CAST(year({0}) AS INTEGER)
weekofyear: CAST(week({0}) AS INTEGER)
from_unix_seconds: make_timestamptz(CAST(CASE WHEN {0} BETWEEN -62135596800 AND 253402300799 THEN ({0}) * 1000000 END AS BIGINT))
from_unix_millis: make_timestamptz(CAST(CASE WHEN {0} BETWEEN -62135596800000 AND 253402300799999 THEN ({0}) * 1000 END AS BIGINT))
from_unix_micros: make_timestamptz(CAST(CASE WHEN {0} BETWEEN -62135596800000000 AND 253402300799999999 THEN {0} END AS BIGINT))
from_unix_nanos: make_timestamptz(CAST(({0}) // 1000 AS BIGINT))
utc_to_local: (({0} AT TIME ZONE {1}) AT TIME ZONE 'UTC')
local_to_utc: OF[[(({0} AT TIME ZONE 'UTC') AT TIME ZONE {1})]][[@ - (((@ AT TIME ZONE {1}) AT TIME ZONE 'UTC') - {0})]]
make_datetime: CASE WHEN TRY_CAST(printf('%04d-%02d-%02d', {0}, {1}, {2}) AS DATE) IS NOT NULL AND {3|0} BETWEEN 0 AND 23 AND {4|0} BETWEEN 0 AND 59 AND {5|0} >= 0 AND {5|0} < 60 THEN make_timestamptz({0}, {1}, {2}, {3|0}, {4|0}, CAST({5|0} AS DOUBLE)) END
to_hex: OF[[lower(to_hex(CAST({0} AS BIGINT)))]][[CASE WHEN length(@) < {1|0} THEN lpad(@, CAST({1|0} AS INTEGER), '0') ELSE @ END]]
part_year: CAST(year({0}) AS BIGINT)
part_quarter: CAST(quarter({0}) AS BIGINT)
part_month: CAST(month({0}) AS BIGINT)
part_week_of_year: CAST(week({0}) AS BIGINT)
part_week: CAST(week({0}) AS BIGINT)
part_day: CAST(day({0}) AS BIGINT)
part_dayofyear: CAST(dayofyear({0}) AS BIGINT)
part_hour: CAST(hour({0}) AS BIGINT)
part_minute: CAST(minute({0}) AS BIGINT)
part_second: CAST(second({0}) AS BIGINT)
part_millisecond: (epoch_us({0}) // 1000 % 1000)
part_microsecond: (epoch_us({0}) % 1000000)
part_nanosecond: (epoch_us({0}) % 1000000 * 1000)
diff_year: CAST(year({0}) - year({1}) AS BIGINT)
diff_quarter: CAST((year({0}) - year({1})) * 4 + quarter({0}) - quarter({1}) AS BIGINT)
diff_month: CAST((year({0}) - year({1})) * 12 + month({0}) - month({1}) AS BIGINT)
diff_week: date_diff('day', date_trunc('week', {1} + INTERVAL 1 DAY), date_trunc('week', {0} + INTERVAL 1 DAY)) // 7
diff_day: date_diff('day', {1}, {0})
diff_hour: date_diff('hour', {1}, {0})
diff_minute: date_diff('minute', {1}, {0})
diff_second: date_diff('second', {1}, {0})
diff_millisecond: (epoch_us({0}) // 1000 - epoch_us({1}) // 1000)
diff_microsecond: (epoch_us({0}) - epoch_us({1}))
diff_nanosecond: ((epoch_us({0}) - epoch_us({1})) * 1000)
add_year: ({0} + to_years(CAST({1} AS INTEGER)))
add_quarter: ({0} + to_months(CAST({1} * 3 AS INTEGER)))
add_month: ({0} + to_months(CAST({1} AS INTEGER)))
add_week: ({0} + to_weeks(CAST({1} AS INTEGER)))
add_day: ({0} + to_days(CAST({1} AS INTEGER)))
add_hour: ({0} + to_hours({1}))
add_minute: ({0} + to_minutes({1}))
add_second: ({0} + to_seconds({1}))
add_millisecond: ({0} + to_milliseconds({1}))
add_microsecond: ({0} + to_microseconds({1}))
range_long: to_json(range({0}, CASE WHEN (CAST({1} AS DOUBLE) - {0}) / ({2}) >= 1048576 THEN {0} + ({2}) * 1048576 ELSE {1} + sign({2})::BIGINT END, {2}))
range_datetime: to_json(list_transform(range(0, least(CAST(floor((epoch_us({1}) - epoch_us({0})) / (({2}) / 10.0)) AS BIGINT) + 1, 1048576)), lambda i: strftime(make_timestamptz(CAST(epoch_us({0}) + i * (({2}) // 10) AS BIGINT)), '%Y-%m-%dT%H:%M:%S.%f0Z')))
range_real: to_json(list_transform(range(0, least(CAST(floor((({1}) - ({0})) / ({2})) AS BIGINT) + 1, 1048576)), lambda i: ({0}) + i * ({2})))
type_of: CASE json_type(to_json({0})) WHEN 'VARCHAR' THEN 'string' WHEN 'OBJECT' THEN 'dictionary' WHEN 'ARRAY' THEN 'array' WHEN 'BOOLEAN' THEN 'bool' WHEN 'DOUBLE' THEN 'double' WHEN 'NULL' THEN 'null' ELSE CASE WHEN {0} IS NULL THEN 'null' ELSE 'long' END END
make_timespan: (({0}) * 36000000000 + ({1}) * 600000000 + CAST(({2|0}) * 10000000 AS BIGINT))
parse_version: CAST(tide_version_text({0}) AS DECIMAL(38, 0))
"""

_MACROS = {
    "<ITEMS>": _ITEMS,
    "<WHOLE>": _WHOLE,
    "<TIME>": _TIME,
    "<NUMERIC>": "json_type(e) IN ('BIGINT', 'UBIGINT', 'DOUBLE')",
    "<GUID>": _GUID,
    "<REALTEXT>": _REAL_TEXT,
    "<SPANTEXT>": _SPAN_TEXT,
    "<ORIGIN>": str(ORIGIN_US),
    "<TEXTS #>": "list_transform(coalesce(TRY_CAST({#} AS JSON[]), []), lambda e: e ->> '$')",
    "<ASLIST #>": "CASE WHEN json_type({#}) = 'ARRAY' THEN CAST({#} AS JSON[]) ELSE [{#}] END",
    "<LIST #>": "coalesce(TRY_CAST({#} AS JSON[]), [])",
    "<TIMETEXT #>": "strftime({#}, '%Y-%m-%dT%H:%M:%S.%f0Z')",
}


def _row(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"struct_pack({', '.join(f'f{at} := {text}' for at, text in enumerate(texts))})"


def _get(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    path = literal_text(nodes[1])
    assert path is not None, "a path is a literal"
    ways = [_pointer(way) for way in path_ways(path)]
    if len(ways) == 1:
        return f"nullif(json_extract({texts[0]}, {ways[0]}), 'null'::JSON)"
    parts = ", ".join(f"json_extract(tide_v, {way})" for way in ways)
    return f"nullif({LET % (texts[0], f'coalesce({parts})')}, 'null'::JSON)"


def _pointer(way: Sequence[str | int]) -> str:
    steps = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in way)
    return quoted(steps)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _term(*, cased: bool = False, prefix: bool = False, suffix: bool = False) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        term = literal_text(nodes[1])
        if term is not None:
            return (
                f"regexp_matches({texts[0]}, {quoted(term_pattern(term, cased=cased, prefix=prefix, suffix=suffix))})"
            )
        edges = {"^%s": "" if suffix else EDGE_BEFORE, "%s$": "" if prefix else EDGE_AFTER}
        before, after = (
            f"CASE WHEN regexp_matches({texts[1]}, '{where % LETTER}') THEN '{edge}' ELSE '' END"
            for where, edge in edges.items()
        )
        flag = "" if cased else "(?i)"
        return f"regexp_matches({texts[0]}, '{flag}' || {before} || regexp_escape({texts[1]}) || {after})"

    return write


def _has_any(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Look for terms by one pattern; those with like edges share them, for hundreds of edges are too large for it."""
    alike: dict[tuple[bool, bool], list[str]] = {}
    for node in nodes[1:]:
        term = literal_text(node) or ""
        alike.setdefault((term[:1].isalnum(), term[-1:].isalnum()), []).append(escaped(term))
    pattern = "|".join(
        f"(?:{EDGE_BEFORE if starts else ''}(?:{'|'.join(terms)}){EDGE_AFTER if ends else ''})"
        for (starts, ends), terms in alike.items()
    )
    return f"regexp_matches({texts[0]}, {quoted('(?i)' + pattern)})"


def _has_all(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    tests = [f"regexp_matches(tide_v, {quoted(term_pattern(literal_text(node) or ''))})" for node in nodes[1:]]
    return LET % (texts[0], " AND ".join(tests))


def _format_datetime(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    pattern = literal_text(nodes[1])
    shape = strftime_of(pattern) if pattern is not None else None
    if shape is not None:
        return f"strftime({texts[0]}, {quoted(shape)})"
    return f"tide_format_datetime_python(CAST(epoch_us({texts[0]}) AS VARCHAR), {texts[1]})"


def _countof(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    kind = literal_text(nodes[2]) if len(nodes) > 2 else "normal"
    if kind == "regex":
        return f"len(regexp_extract_all({texts[0]}, {texts[1]}))"
    return f"tide_countof_plain({texts[0]}, {texts[1]})"


def _extract(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Give a group of the first match; DuckDB counts groups only up to nine there, but among all matches any."""
    pattern, group, subject = texts
    if group.isdecimal() and int(group) > 9:
        return f"coalesce(regexp_extract_all({subject}, {pattern}, {group})[1], '')"
    return f"regexp_extract({subject}, {pattern}, CAST({group} AS INTEGER))"


def _indexof(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"(strpos({texts[0]}, {texts[1]}) - 1)"


def _json_lists(texts: Sequence[str]) -> list[str]:
    return [f"coalesce(TRY_CAST({text} AS JSON[]), [])" for text in texts]


def _array_concat(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"to_json(flatten([{', '.join(_json_lists(texts))}]))"


def _set_union(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"to_json(list_sort(list_distinct(flatten([{', '.join(_json_lists(texts))}]))))"


def _set_fold(negation: str) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        lists = _json_lists(texts)
        asked = any(node.find(exp.Subquery) for node in nodes)  # no lambda may hold a query: it is named before
        first, *rest = [f"l{at}" for at, _ in enumerate(lists)] if asked else lists
        found = f"list_distinct({first})"
        for other in rest:
            found = f"list_filter({found}, lambda e: {negation}list_contains({other}, e))"
        written = f"to_json(list_sort({found}))"
        if not asked:
            return written
        return f"(SELECT {written} FROM (SELECT {', '.join(f'{each} AS l{at}' for at, each in enumerate(lists))}))"

    return write


def _set_equals(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    one, other = (f"list_sort(list_distinct({item}))" for item in _json_lists(texts))
    return f"({one} = {other})"


def _pack(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"json_object({', '.join(texts)})"


def _pack_array(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"json_array({', '.join(texts)})"


def _bag_merge(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Merge bags: of a key that several have, the first counts."""
    bag = "coalesce(CAST(CASE WHEN json_type({0}) = 'OBJECT' THEN {0} END AS MAP(VARCHAR, JSON)), MAP {{}})"
    return f"to_json(map_concat({', '.join(bag.format(text) for text in reversed(texts))}))"


def _zip(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    lists = _json_lists(texts)
    length = f"greatest({', '.join(f'len({item})' for item in lists)})"
    cells = ", ".join(f"list_extract({item}, i + 1)" for item in lists)
    return f"to_json(list_transform(range(CAST({length} AS BIGINT)), lambda i: [{cells}]))"


def _rows_of(kind: str) -> Writer:
    """Write a long list, which stands alone in the brackets of ``in``, as a query for its values."""
    return lambda _, texts: f"SELECT unnest(CAST(CAST({texts[0]} AS JSON) AS {kind}[]))"


_WRITTEN: dict[str, Writer] = {
    "tide_texts": _rows_of("VARCHAR"), "tide_longs": _rows_of("BIGINT"),
    "tide_get": _get, "tide_row": _row, "tide_has": _term(), "tide_has_cs": _term(cased=True),
    "tide_hasprefix": _term(prefix=True), "tide_hasprefix_cs": _term(prefix=True, cased=True),
    "tide_hassuffix": _term(suffix=True), "tide_hassuffix_cs": _term(suffix=True, cased=True),
    "tide_has_any": _has_any, "tide_has_all": _has_all, "tide_format_datetime": _format_datetime,
    "tide_countof": _countof, "tide_extract": _extract, "tide_indexof": _indexof, "tide_array_concat": _array_concat,
    "tide_set_union": _set_union, "tide_set_intersect": _set_fold(""),
    "tide_set_difference": _set_fold("NOT "), "tide_set_equals": _set_equals, "tide_pack": _pack,
    "tide_pack_array": _pack_array, "tide_bag_merge": _bag_merge, "tide_zip": _zip,
}  # fmt: skip

WRITERS: dict[str, Writer] = merged(writers(expanded(_TEMPLATES, _MACROS, LET), LET), _WRITTEN, sized.DUCKDB)
