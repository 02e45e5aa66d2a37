"""Answer questions about tables, in SQL and in KQL, on an engine in process or on Spark."""
