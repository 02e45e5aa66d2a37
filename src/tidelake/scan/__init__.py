"""Extents and hot rows as Arrow batches, with every predicate answered for every row.

May import ``catalog``, ``format``, ``ingest`` and below. Its door is ``extents``, the only reader of extents.
"""
