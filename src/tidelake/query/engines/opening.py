"""Open DuckDB so that a query reaches nothing but the scans it is given: no files, no network, no settings.

It does not register functions.
"""

from __future__ import annotations

import duckdb

SETTINGS = {
    "temp_directory": "''",  # nothing is spilled
    "TimeZone": "'UTC'",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a name in a query is never a variable of ours
    "ieee_floating_point_ops": "false",  # what is divided by zero is null, as on Spark
    "error_on_division_by_zero": "false",
    "enable_external_access": "false",  # no files, no network
    "lock_configuration": "true",  # last: nothing can be set after it
}


def opened(memory_bytes: int, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open an engine with a limit of memory, and so many threads, by default one for each core."""
    config: dict[str, str | bool | int | float | list[str]] = {"memory_limit": f"{memory_bytes}B"}
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:", config=config)
    for name, value in SETTINGS.items():
        connection.execute(f"SET GLOBAL {name} = {value}")
    return connection
