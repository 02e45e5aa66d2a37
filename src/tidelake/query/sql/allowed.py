"""List what a query written in SQL may be made of: kinds of nodes, functions by their kind, functions by their name.

Whatever is not listed is refused, so a function that an engine gains with its next version is closed until somebody has
looked at it. The functions compute from their arguments alone: none reads a file, a setting, the environment or the
session, and none calls a class, a process or the network. It does not know engines: see ``guard``.
"""

from __future__ import annotations

from tidelake.query.sql.functions import CALLS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Kinds of nodes that are no functions.
NODES = _names(
    """
    Add Alias Aliases All Any AtIndex AtTimeZone Between Binary BitString BitwiseAnd BitwiseLeftShift BitwiseNot
    BitwiseOr BitwiseRightShift BitwiseXor Boolean Bracket ByteString Cluster Column ColumnDef CTE Cube DataType
    DataTypeParam Distinct Distribute Div Dot DPipe EQ Escape Except Fetch Filter From Group GroupingSets GT GTE
    Having HavingMax HexString Identifier IgnoreNulls ILike In IntDiv Intersect Interval IntervalSpan Is Join JSON
    JSONKeyValue JSONPath JSONPathFilter JSONPathKey JSONPathRecursive JSONPathRoot JSONPathScript JSONPathSelector
    JSONPathSlice JSONPathSubscript JSONPathUnion JSONPathWildcard Kwarg Lambda Lateral Like Limit LimitOptions
    Literal LT LTE Mod Mul National Neg NEQ Not Null NullSafeEQ NullSafeNEQ Offset Order Ordered Overlaps Paren
    PivotAlias
    PropertyEQ Qualify RawString RespectNulls Rollup Select SimilarTo Slice Sort Star Sub Subquery Table TableAlias
    TableSample Tuple UnicodeString Union Values Var Version Where Window WindowSpec With WithinGroup
    """
)

# Functions that the parser knows, by the kind of their node.
FUNCTION_NODES = _names(
    """
    _ExplodeOuter Abs Acos Acosh AddMonths And AnyValue ApproxDistinct ApproxQuantile ApproxTopK
    ApproxTopKAccumulate ApproxTopKCombine ApproxTopKEstimate ArgMax ArgMin Array ArrayAgg ArrayAll ArrayAny
    ArrayAppend ArrayCompact ArrayConcat ArrayContains ArrayDistinct ArrayExcept ArrayFilter ArrayInsert
    ArrayIntersect ArrayMax ArrayMin ArrayOverlaps ArrayPosition ArrayPrepend ArrayRemove ArrayReverse ArraySize
    ArraySlice ArraySort ArraySum ArraysZip ArrayToString ArrayUniqueAgg Ascii Asin Asinh Atan Atan2 Atanh Avg
    BitLength BitmapBitPosition BitmapBucketNumber BitmapConstructAgg BitmapCount BitmapOrAgg BitwiseAndAgg
    BitwiseCount BitwiseOrAgg BitwiseXorAgg ByteLength Case Cast CastToStrType Cbrt Ceil Chr Coalesce Collate
    Collation Concat ConcatWs Contains ConvertTimezone Corr Cos Cosh CosineDistance Cot Count CountIf CovarPop
    CovarSamp Csc CumeDist CurrentDate CurrentDatetime CurrentTime CurrentTimestamp CurrentTimestampLTZ
    CurrentTimezone Date DateAdd DateDiff DateFromParts DateFromUnixDate DateStrToDate DateSub Datetime DatetimeAdd
    DatetimeDiff DatetimeSub DatetimeTrunc DateToDateStr DateTrunc Day Dayname DayOfMonth DayOfWeek DayOfWeekIso
    DayOfYear Decode DecodeCase Degrees DenseRank DotProduct Elt Encode EndsWith EqualNull EuclideanDistance Exists
    Exp Explode ExplodeOuter Extract Factorial First FirstValue Flatten Floor Format FromBase32 FromBase64 FromJson
    GenerateSeries Getbit Greatest GroupConcat Grouping GroupingId Hex Hour If Initcap Inline IsAscii IsInf IsNan
    IsNullValue JarowinklerSimilarity JSONArray JSONArrayAgg JSONExtract JSONExtractScalar JSONFormat JSONKeys
    JSONObject Kurtosis Lag Last LastDay LastValue Lead Least Left Length Levenshtein Ln Localtime Localtimestamp
    Log LogicalAnd LogicalOr Lower MakeInterval Map MapCat MapContainsKey MapFromEntries MapKeys MapSize Max MD5
    MD5Digest Median Min Minute Mode Month Monthname MonthsBetween Nanvl Negative NextDay NthValue Ntile Nullif
    NumberToStr Nvl2 Or Overlay Pad ParseJSON ParseUrl PercentileCont PercentileDisc PercentRank Pi Posexplode
    PosexplodeOuter Pow Quantile Quarter Radians Rand Randn Randstr Rank Reduce RegexpCount RegexpExtract
    RegexpExtractAll RegexpILike RegexpInstr RegexpLike RegexpReplace RegexpSplit RegexpSubstr RegrAvgx RegrAvgy
    RegrCount RegrIntercept RegrR2 RegrSlope RegrSxx RegrSxy RegrSyy Repeat Replace Reverse Right Rint Round
    RowNumber SafeAdd SafeDivide SafeMultiply SafeNegate SafeSubtract Sec Second SHA SHA1Digest SHA2 SHA2Digest
    Shuffle Sign Sin Sinh Skewness Soundex Space Split SplitPart Sqrt Stack StarMap StartsWith Stddev StddevPop
    StddevSamp String StringToArray StrPosition StrToDate StrToMap StrToTime StrToUnix Struct StructExtract
    Substring SubstringIndex Sum Tan Tanh Time TimeAdd TimeDiff Timestamp TimestampAdd TimestampDiff
    TimestampFromParts TimestampSub TimestampTrunc TimeStrToDate TimeStrToTime TimeStrToUnix TimeSub TimeToStr
    TimeToUnix TimeTrunc ToArray ToBase32 ToBase64 ToBinary ToBoolean ToChar ToDays ToDouble ToMap ToNumber
    ToVariant Transform Translate Trim Trunc Try TryCast TsOrDsAdd TsOrDsDiff TsOrDsToDate TsOrDsToDateStr
    TsOrDsToDatetime TsOrDsToTime TsOrDsToTimestamp Typeof Unhex Unicode Uniform UnixDate UnixMicros UnixMillis
    UnixSeconds UnixToStr UnixToTime Unnest Upper UtcDate UtcTime UtcTimestamp Uuid Variance VariancePop VarMap Week
    WeekOfYear WidthBucket Xor Year
    """
)

# Functions of Spark's, by name: those that DuckDB has as well, and those that we declare.
FUNCTION_NAMES = frozenset(CALLS) | _names(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt any_value approx_count_distinct approx_percentile approx_top_k
    approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array array_agg array_append array_compact
    array_except array_intersect array_join array_max array_min array_prepend array_size arrays_zip ascii asin asinh
    assert_true atan atan2 atanh avg base64 bigint bin binary bit_and bit_length bit_or bit_xor bitmap_and_agg
    bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or
    boolean cardinality cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    collect_list collect_set collect_union concat concat_ws contains convert_timezone corr cos cosh count count_if
    count_min_sketch counter_diff covar_pop covar_samp cume_dist curdate current_date current_time current_timestamp
    current_timezone date date_add date_part date_sub date_trunc dateadd datepart day dayname dayofmonth dayofweek
    dayofyear decimal decode degrees dense_rank double element_at encode endswith exp explode explode_outer extract
    first first_value float floor format_number from_base32 from_csv from_unixtime get_json_object greatest grouping
    grouping_id hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hmac hour if
    ifnull initcap inline inline_outer instr int is_valid_utf8 is_valid_variant is_variant_null isnan
    jaro_winkler_similarity json_tuple kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least
    len length levenshtein listagg ln localtime localtimestamp locate log log10 log2 lower ltrim make_interval
    make_time make_timestamp_ltz make_timestamp_ntz make_valid_utf8 map map_concat map_entries map_from_arrays
    map_from_entries map_keys map_values max max_by md5 mean median min min_by minute mod mode
    monotonically_increasing_id month monthname named_struct now nth_value ntile nullif nvl nvl2 octet_length
    overlay parse_json percent_rank percentile_approx percentile_cont percentile_disc pi posexplode posexplode_outer
    position quarter radians raise_error rand randn random range rank regexp_count regexp_extract regexp_extract_all
    regexp_instr regexp_like regexp_replace regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy repeat reverse rlike round row_number rtrim schema_of_csv schema_of_json
    schema_of_variant schema_of_variant_agg second sentences sequence session_window sha sha1 sha2 shiftright
    shuffle sin sinh size skewness slice smallint space sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid
    st_srid stack startswith stddev stddev_pop stddev_samp string string_agg struct substr substring sum tan tanh
    theta_difference theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union
    theta_union_agg time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
    time_to_millis time_to_seconds time_trunc timestamp timestamp_nanos tinyint to_base32 to_binary to_csv to_date
    to_json to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_variant_object translate
    trim trunc try_aes_decrypt try_make_interval try_make_timestamp_ltz try_make_timestamp_ntz try_parse_json
    try_parse_url try_to_binary try_to_date try_to_time try_to_timestamp try_validate_utf8 try_variant_array_append
    try_variant_get try_variant_insert try_variant_set tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double
    tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer typeof ucase unbase64 unhex unix_date unix_nanos unix_timestamp upper uuid
    validate_utf8 var_pop var_samp variance variant_array_append variant_delete variant_explode
    variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls vector_avg
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    weekofyear window window_time xxhash64 year
    """
)

# What may stand among the tables as a call, by name, besides answers about coverage.
TABLE_FUNCTIONS = _names(
    """
    explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple range unnest values
    variant_explode variant_explode_outer
    """
)
