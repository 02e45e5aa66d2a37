"""Answer questions about tables, in SQL and in KQL, on an engine in process or on Spark.

May import ``spark``, ``handle``, ``scan`` and below. Its door is ``session``.
"""
