"""Sync tables of MySQL and MariaDB by their binlog, and read them in place: ``reading`` is the source itself."""
