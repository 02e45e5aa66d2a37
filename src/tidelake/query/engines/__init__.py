"""Where a query runs: in process on DuckDB, on Spark, or from the manifest alone.

Its doors are ``local``, ``spark`` and ``manifest``; ``query.session`` picks one.
"""
