"""Rows on their way in: tables are created, appends become extents or hot rows, schemas follow what arrives.

May import ``handle``, ``coverage``, ``scan``, ``ingest`` and below. Its doors are the verbs that change a table, each a
function of a handle: ``create``, ``append``, ``ingest``, ``flush``, ``alter``, ``promote``. What else writes rows, such
as Spark's jobs, uses ``appender``.
"""
