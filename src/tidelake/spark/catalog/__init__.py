"""Answer what Spark's JVM asks about a lake that it has as a catalog: ``tidelake.obs.logs`` in SQL.

``LakeCatalog.java`` implements Spark's interfaces and knows nothing of lakes. For every question it calls ``Answers``
(``door``) with a verb and JSON, and gets JSON; so all answers are of the lake as it is. It does not move rows: tables
are read and written through the data source, by options that an answer names.
"""
