"""Sync tables of PostgreSQL by logical replication, over plain SQL: ``reading`` is the source itself."""
