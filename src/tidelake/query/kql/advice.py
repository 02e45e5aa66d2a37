"""Suggest what to write instead of the KQL that is not supported.

A refusal names the construct; this adds what to do. It does not decide what is supported.
"""

from __future__ import annotations

from collections.abc import Mapping

_GRAPH = "join the table of edges with itself, once for each step of the path"
_SKETCH = "dcount is exact here, and counts from the rows"
_DIGEST = "percentile is exact here, and counts from the rows"
_PATTERNS = "summarize count() by the columns of interest shows the same"
_OUTSIDE = "a query reaches nothing outside the lake: load the data into a table"
_RETENTION = "summarize dcount() by bin() of the time shows the same"

OPERATORS: Mapping[str, str] = {
    "scan": "prev, next, row_cumsum and row_window_session follow rows in order",
    "fork": "ask one query for each branch",
    "facet": "ask one summarize for each column",
    "execute-and-cache": "materialize keeps a result within a query",
    "macro-expand": "union the tables of each database",
    "assert-schema": "getschema shows a table's columns",
    "make-graph": _GRAPH,
    "graph-match": _GRAPH,
    "graph-shortest-paths": _GRAPH,
    "graph-to-table": _GRAPH,
    "graph-mark-components": _GRAPH,
    "graph-where-nodes": _GRAPH,
    "graph-where-edges": _GRAPH,
    "graph-merge": _GRAPH,
}

FUNCTIONS: Mapping[str, str] = {
    "geo_info_from_ip_address": "keep networks and their places in a table, and use evaluate ipv4_lookup",
    "bin_auto": "use bin with a size",
    "parse_user_agent": "use extract, or keep the parts in columns",
    "current_principal": "a lake knows no users",
    "current_principal_details": "a lake knows no users",
    "current_principal_is_member_of": "a lake knows no users",
    "cursor_after": "compare the table's time column instead",
    "cursor_before_or_at": "compare the table's time column instead",
    "cursor_current": "compare the table's time column instead",
    "extent_id": "the shell's inspect shows extents",
    "extent_tags": "the shell's inspect shows extents",
    "stored_query_result": "write the result into a table",
    "external_table": _OUTSIDE,
    "graph": _GRAPH,
}

PLUGINS: Mapping[str, str] = {
    "autocluster": _PATTERNS,
    "basket": _PATTERNS,
    "diffpatterns": _PATTERNS,
    "python": "read the result into Python, and compute there",
    "r": "read the result into R, and compute there",
    "sequence_detect": "join the table with itself, or use prev and next",
    "funnel_sequence": "join the table with itself, or use prev and next",
    "funnel_sequence_completion": "join the table with itself, or use prev and next",
    "session_count": "row_window_session finds sessions",
    "active_users_count": _RETENTION,
    "activity_engagement": _RETENTION,
    "preview": "take shows some rows",
    "infer_storage_schema": _OUTSIDE,
    "http_request": _OUTSIDE,
    "http_request_post": _OUTSIDE,
    "sql_request": _OUTSIDE,
    "mysql_request": _OUTSIDE,
    "postgresql_request": _OUTSIDE,
    "cosmosdb_sql_request": _OUTSIDE,
    "azure_digital_twins_query_request": _OUTSIDE,
}


def refusal(what: str, name: str, advice: Mapping[str, str], hint: str = "") -> str:
    """Write that something is not supported, and what to do instead if that is known."""
    instead = advice.get(name)
    return f"{what} '{name}' is not supported{f': {instead}' if instead else hint}"
