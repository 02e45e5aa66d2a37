"""The catalog of one table as a transaction log beside its data, without a database.

May import ``model``, ``objects`` and the catalog's protocol. Its door is ``log_catalog``.
"""
