"""Be the data source ``tidelake``: what Spark asks for, and which part of this package answers.

It does not read or write: see ``reading``, ``writing``, ``overwriting``, ``changing`` and ``streaming``.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

NAME = "tidelake"


class TidelakeSource(DataSource):
    """Tables of a lake in Spark, batch and stream, both ways."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return all columns of the table; a schema that the user gives instead chooses among them."""
        from tidelake.spark.all_users import are_all, schema_of_all
        from tidelake.spark.options import known_options
        from tidelake.spark.places import open_table
        from tidelake.spark.streaming import with_feed
        from tidelake.spark.types import spark_schema

        options = known_options(self.options, "any")
        if are_all(options):
            return schema_of_all(open_table(options))
        return with_feed(spark_schema(open_table(options).schema), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelake.spark.all_users import AllUsersReader, are_all
        from tidelake.spark.options import known_options
        from tidelake.spark.reading import TableReader

        options = known_options(self.options, "batch")
        return AllUsersReader(options, schema) if are_all(options) else TableReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelake.spark.changing import ChangeWriter
        from tidelake.spark.options import CHANGE, known_options
        from tidelake.spark.overwriting import OverwriteWriter
        from tidelake.spark.writing import BatchWriter

        options = known_options(self.options, "batch write")
        if CHANGE in options:
            return ChangeWriter(options, schema)
        writer = OverwriteWriter if overwrite else BatchWriter
        return writer(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidelake.spark.options import known_options
        from tidelake.spark.overwriting import CompleteWriter
        from tidelake.spark.writing import StreamWriter

        writer = CompleteWriter if overwrite else StreamWriter
        return writer(known_options(self.options, "stream write"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelake.spark.options import known_options
        from tidelake.spark.streaming import StreamReader

        return StreamReader(known_options(self.options, "stream read"), schema)
