"""Rows on their way in: tables are created, appends become extents or hot rows, schemas follow what arrives.

May import ``coverage``, ``scan``, ``ingest`` and below. Its door is ``appender``.
"""
