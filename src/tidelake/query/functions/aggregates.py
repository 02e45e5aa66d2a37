"""Name the portable calls that make one row of many, and those that make many of one.

A limit or a condition must not be asked of the rows that such a call reads. It does not write calls.
"""

from __future__ import annotations

from tidelake.query.sql.functions import AGGREGATE_CALLS, OURS, ROW_CALLS

OUR_NAMES = "tide_"

AGGREGATES = frozenset(
    {
        "tide_terms", "tide_arg_max", "tide_arg_min", "tide_any", "tide_stdev", "tide_stdevp", "tide_variance",
        "tide_variancep", "tide_covariance", "tide_covariancep", "tide_make_list_with_nulls", "tide_all_and",
        "tide_all_or", "tide_all_xor", "tide_make_set", "tide_make_set_of_datetime", "tide_make_set_of_dynamic",
        "tide_make_list", "tide_make_list_of_datetime", "tide_make_list_of_dynamic", "tide_make_list_ordered",
        "tide_make_list_ordered_of_datetime",
        "tide_make_list_ordered_of_dynamic", "tide_make_bag", "tide_series",
        "tide_percentile",
    }
    | {OURS + name for name in AGGREGATE_CALLS}
)  # fmt: skip
ROW_MAKERS = frozenset({"tide_explode"} | {OURS + name for name in ROW_CALLS})
