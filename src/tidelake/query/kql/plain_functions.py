"""List the scalar functions that are one portable function with typed arguments.

``LINES`` is the whole list, a line each. It does not know columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.values import Value, call


def _plain(target: str, result: str, *kinds: str) -> Rule:
    def rule(args: Arguments) -> Value:
        values = [args.as_type(index, kinds[min(index, len(kinds) - 1)]) for index in range(len(args))]
        return Value(call(target, *(value.sql for value in values)), result)

    return rule


# name(s): portable function, result type, argument types; a type in brackets may be left out, "…" repeats the last.
LINES = """
strlen: tide_strlen long text
string_size: tide_string_size long text
tolower: tide_lower string text
toupper: tide_upper string text
reverse: tide_reverse string text
trim: tide_trim string regex text
trim_start: tide_trim_start string regex text
trim_end: tide_trim_end string regex text
countof: tide_countof long text text [text]
replace_string: tide_replace string text text text
replace_regex: tide_replace_regex string text regex text
message_template: tide_message_template string text
template_id: tide_template_id string text
message_variables: tide_message_variables dynamic text
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
punycode_domain_from_string: tide_punycode_domain_decode string text
punycode_domain_to_string: tide_punycode_domain_encode string text
array_length: tide_array_length long dynamic
arraylength: tide_array_length long dynamic
array_slice: tide_array_slice dynamic dynamic long long
array_reverse: tide_array_reverse dynamic dynamic
array_sum: tide_array_sum real dynamic
array_concat: tide_array_concat dynamic dynamic …
set_union: tide_set_union dynamic dynamic …
set_intersect: tide_set_intersect dynamic dynamic …
set_difference: tide_set_difference dynamic dynamic …
hll_merge: tide_set_union dynamic dynamic …
dcount_hll: tide_array_length long dynamic
merge_tdigest: tide_array_concat dynamic dynamic …
tdigest_merge: tide_array_concat dynamic dynamic …
rank_tdigest: tide_rank_of long dynamic real
percentrank_tdigest: tide_percentrank_of real dynamic real
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
beta_cdf: tide_beta_cdf real real real real
beta_pdf: tide_beta_pdf real real real real
beta_inv: tide_beta_inv real real real real
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


def _read() -> dict[str, ScalarFunction]:
    found: dict[str, ScalarFunction] = {}
    for line in LINES.strip().splitlines():
        name, rest = line.split(": ")
        target, result, *kinds = rest.split()
        least = sum(not kind.startswith("[") and kind != "…" for kind in kinds)
        most = 64 if "…" in kinds else len(kinds)
        types = [kind.strip("[]") for kind in kinds if kind != "…"] or ["any"]
        found[name] = ScalarFunction(name, least, most, _plain(target, result, *types), result)
    return found


PLAIN: Mapping[str, ScalarFunction] = _read()
