"""The catalog in SQLite or PostgreSQL: prepared statements, transactions, checksums.

May import ``model``, ``objects`` and the catalog's protocol. Its door is ``sql_catalog``.
"""
