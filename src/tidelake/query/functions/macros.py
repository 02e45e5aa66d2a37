"""Define what templates share, once for each engine: ``#`` is where a macro's text goes, ``@`` the value of a ``let``.

It does not write functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Engine = Literal["duckdb", "spark"]

TIME_SHAPE = "\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'0Z'\""  # of Spark's formatter
_GUID = "^" + "-?".join(f"({'[0-9a-fA-F]' * size})" for size in (8, 4, 4, 4, 12))
_STRPTIME = (
    "'%m/%d/%Y %H:%M:%S', '%m/%d/%Y %I:%M:%S %p', '%m/%d/%Y', '%d %b %y %H:%M:%S', '%d %b %y %H:%M', "
    "'%d-%b-%y %H:%M:%S', '%m-%d-%Y', '%m-%d-%Y %H:%M:%S', '%H:%M %d %b %Y', '%H:%M:%S %d %b %Y', "
    "'%d %b %Y %H:%M:%S', '%d %b %Y', '%b %d, %Y', '%Y/%m/%d %H:%M:%S', '%Y/%m/%d', '%Y%m%d'"
)
_JAVA_TIMES = (
    "M/d/yyyy H:mm:ss", "M/d/yyyy h:mm:ss a", "M/d/yyyy", "d MMM yy H:mm:ss", "d MMM yy H:mm", "d-MMM-yy H:mm:ss",
    "d MMM yyyy H:mm:ss", "d MMM yyyy", "M-d-yyyy", "M-d-yyyy H:mm:ss", "H:mm d MMM yyyy", "H:mm:ss d MMM yyyy",
    "MMM d, yyyy", "yyyy/M/d H:mm:ss", "yyyy/M/d", "yyyyMMdd",
)  # fmt: skip

MACROS: Mapping[str, Mapping[Engine, str]] = {
    # microseconds from the year 1, from which bins of time are counted, to 1970
    "origin": {"duckdb": "62135596800000000", "spark": "62135596800000000"},
    # an array's items, as texts; none of what is no array
    "texts": {
        "duckdb": "list_transform(<list #>, lambda e: e ->> '$')",
        "spark": "transform(<list #>, e -> try_cast(e AS STRING))",
    },
    "list": {"duckdb": "coalesce(<list_or_null #>, [])", "spark": "coalesce(<list_or_null #>, array())"},
    "list_or_null": {"duckdb": "TRY_CAST(# AS JSON[])", "spark": "try_cast(# AS ARRAY<VARIANT>)"},
    # an array's items, or the one value that is no array
    "as_list": {
        "duckdb": "CASE WHEN json_type(#) = 'ARRAY' THEN CAST(# AS JSON[]) ELSE [#] END",
        "spark": "CASE WHEN # IS NULL THEN NULL WHEN startswith(schema_of_variant(#), 'ARRAY') "
        "THEN <list_or_null #> ELSE array(#) END",
    },
    # the first cases of what a value consists of: null, and an array
    "items": {
        "duckdb": "CASE WHEN @ IS NULL THEN [NULL::JSON] WHEN json_type(@) = 'ARRAY' THEN CAST(@ AS JSON[])",
        "spark": "CASE WHEN @ IS NULL THEN array(CAST(NULL AS VARIANT)) "
        "WHEN startswith(schema_of_variant(@), 'ARRAY') THEN <list_or_null @>",
    },
    "bag": {"duckdb": "CAST(# AS MAP(VARCHAR, JSON))", "spark": "try_cast(# AS MAP<STRING, VARIANT>)"},
    # the path to a key
    "pointer": {"duckdb": "'/' || replace(replace(#, '~', '~0'), '/', '~1')"},
    # the numbers from 0 to below some number
    "counted": {
        "duckdb": "range(#)",
        "spark": "(CASE WHEN (#) <= 0 THEN CAST(array() AS ARRAY<BIGINT>) "
        "ELSE sequence(0L, CAST((#) - 1 AS BIGINT)) END)",
    },
    # whether an item e is a number
    "numeric": {
        "duckdb": "json_type(e) IN ('BIGINT', 'UBIGINT', 'DOUBLE')",
        "spark": "regexp_like(schema_of_variant(e), '^(BIGINT|DOUBLE|DECIMAL|FLOAT|INT|SMALLINT|TINYINT)')",
    },
    # a pattern that finds a text as a whole term
    "edged": {
        "duckdb": r"CASE WHEN regexp_matches(#, '^[\p{L}\p{N}]') THEN '(?:^|[^\p{L}\p{N}])' ELSE '' END || "
        r"regexp_escape(#) || CASE WHEN regexp_matches(#, '[\p{L}\p{N}]$') THEN '(?:$|[^\p{L}\p{N}])' ELSE '' END",
        "spark": r"CASE WHEN regexp_like(#, '^[\\p{L}\\p{N}]') THEN '(?:^|[^\\p{L}\\p{N}])' ELSE '' END, '\\Q', #, "
        r"'\\E', CASE WHEN regexp_like(#, '[\\p{L}\\p{N}]$') THEN '(?:$|[^\\p{L}\\p{N}])' ELSE '' END",
    },
    # a text as a whole number: hexadecimal, cut off, or as it stands
    "whole": {
        "duckdb": r"CASE WHEN regexp_matches(@, '^\s*0[xX]') THEN TRY_CAST(trim(@) AS BIGINT) "
        "WHEN regexp_matches(@, '[.eE]') THEN TRY_CAST(trunc(TRY_CAST(replace(@, '_', '?') AS DOUBLE)) AS BIGINT) "
        "ELSE TRY_CAST(trim(replace(@, '_', '?')) AS BIGINT) END",
        "spark": r"CASE WHEN regexp_like(@, '^\\s*0[xX]') THEN "
        "try_cast(conv(substring(trim(@), 3), 16, 10) AS BIGINT) "
        "WHEN regexp_like(@, '[.eE]') THEN try_cast(try_cast(@ AS DOUBLE) AS BIGINT) "
        "ELSE try_cast(trim(@) AS BIGINT) END",
    },
    # a text as a time
    "time": {
        "duckdb": r"CASE WHEN regexp_matches(@, '^\s*\d\d\d\d-\d\d?-\d') THEN "
        r"TRY_CAST(regexp_replace(trim(@), '\s+([+-]\d)', '\1') AS TIMESTAMPTZ) "
        r"WHEN regexp_matches(@, '^\s*\d\d\d\d(-\d\d?)?\s*$') "
        "THEN TRY_CAST(trim(@) || CASE WHEN contains(@, '-') THEN '-01' ELSE '-01-01' END AS TIMESTAMPTZ) "
        r"WHEN regexp_matches(@, '\d') THEN TRY_CAST(try_strptime(regexp_replace(regexp_replace("
        r"trim(@), '^[A-Za-z]+,\s*', ''), '\s+(GMT|UTC)$', ''), "
        f"[{_STRPTIME}]) AS TIMESTAMPTZ) END",
        "spark": r"CASE WHEN regexp_like(@, '^\\s*\\d\\d\\d\\d(-\\d\\d?(-\\d.*)?)?\\s*$') "
        "THEN try_cast(trim(@) AS TIMESTAMP) ELSE transform(array("
        r"regexp_replace(regexp_replace(trim(@), '^[A-Za-z]+,\\s*', ''), '\\s+(GMT|UTC)$', '')), tide_w -> coalesce("
        + ", ".join(f"try_to_timestamp(tide_w, '{shape}')" for shape in _JAVA_TIMES)
        + "))[0] END",
    },
    "guid": {
        "duckdb": f"CASE WHEN regexp_matches(@, '{_GUID}') THEN "
        rf"lower(regexp_replace(regexp_extract(@, '{_GUID}'), '{_GUID}', '\1-\2-\3-\4-\5')) END",
        "spark": f"CASE WHEN regexp_like(@, '{_GUID}') THEN "
        f"lower(regexp_replace(regexp_extract(@, '{_GUID}', 0), '{_GUID}', '$1-$2-$3-$4-$5')) END",
    },
    "time_shape": {"duckdb": "'%Y-%m-%dT%H:%M:%S.%f0Z'", "spark": TIME_SHAPE},
    "time_text": {"duckdb": "strftime(#, <time_shape>)", "spark": "date_format(#, <time_shape>)"},
    "span_text": {
        "duckdb": "CASE WHEN @ < 0 THEN '-' ELSE '' END || "
        "CASE WHEN abs(@) >= 864000000000 THEN (abs(@) // 864000000000)::VARCHAR || '.' ELSE '' END || "
        "printf('%02d:%02d:%02d', abs(@) // 36000000000 % 24, abs(@) // 600000000 % 60, abs(@) // 10000000 % 60) || "
        "CASE WHEN abs(@) % 10000000 <> 0 THEN printf('.%07d', abs(@) % 10000000) ELSE '' END",
        "spark": "CASE WHEN @ IS NULL THEN NULL ELSE concat(CASE WHEN @ < 0 THEN '-' ELSE '' END, "
        "CASE WHEN abs(@) >= 864000000000 THEN concat(CAST(abs(@) div 864000000000 AS STRING), '.') ELSE '' END, "
        "format_string('%02d:%02d:%02d', abs(@) div 36000000000 % 24, abs(@) div 600000000 % 60, "
        "abs(@) div 10000000 % 60), "
        "CASE WHEN abs(@) % 10000000 <> 0 THEN format_string('.%07d', abs(@) % 10000000) ELSE '' END) END",
    },
    "real_text": {
        "duckdb": "CASE WHEN isnan(@) THEN 'NaN' "
        "WHEN isinf(@) THEN CASE WHEN @ > 0 THEN 'Infinity' ELSE '-Infinity' END "
        "WHEN @ = trunc(@) AND abs(@) < 1e16 THEN CAST(CAST(@ AS BIGINT) AS VARCHAR) "
        r"ELSE upper(regexp_replace(CAST(@ AS VARCHAR), '([.][0-9]*[1-9])0+$', '\1')) END",  # decimals have zeros there
        "spark": "CASE WHEN isnan(@) OR abs(@) = DOUBLE('Infinity') THEN CAST(@ AS STRING) "
        "WHEN @ = rint(@) AND abs(@) < 1e16 THEN CAST(CAST(@ AS BIGINT) AS STRING) "
        "WHEN abs(@) >= 1e-4 AND abs(@) < 1e16 THEN "
        "regexp_replace(CAST(CAST(CAST(@ AS STRING) AS DECIMAL(38, 22)) AS STRING), '0+$', '') "
        "ELSE regexp_replace(regexp_replace(regexp_replace(CAST(@ AS STRING), '[.]0E', 'E'), 'E([0-9])', 'E+$1'), "
        "'E([+-])([0-9])$', 'E$10$2') END",
    },
}
