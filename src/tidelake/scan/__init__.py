"""Extents and hot rows as Arrow batches, with every predicate answered for every row.

May import ``catalog``, ``format``, ``ingest`` and below. Its doors are ``extents``, the only reader of extents, and
``scannable``, which says what a query scans.
"""
