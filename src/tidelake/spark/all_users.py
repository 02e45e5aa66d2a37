"""Read the rows of all users of a table in Spark, for operators: whose a row is stands in the column ``_user``.

The driver asks the catalog for each user's extents and hot rows and reads no object; a task reads the footers of the
extents that it was given, and then their blocks. A split holds several users, so that many small tables are few tasks.
Each user's rows are those of one snapshot, the newest when it was planned. It does not stream, nor write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from tidelake.errors import InvalidInputError
from tidelake.handle.all_users import USER_COLUMN, check_no_user_column
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import DataType
from tidelake.pruning.plan import ScanPlan
from tidelake.scan.extents import prune_blocks, scan
from tidelake.scan.footers import Footers
from tidelake.spark.options import number_of, option
from tidelake.spark.places import Place, open_table
from tidelake.spark.reading import MAX_SPLIT_BYTES, wanted_rows
from tidelake.spark.types import arrow_schema, projected, spark_schema, to_spark

MAX_USERS = 1_000  # of one split


class UsersSplit(InputPartition):
    """What one task reads: the plans of some users."""

    def __init__(self, plans: Sequence[tuple[str, ScanPlan]]) -> None:
        self.plans = tuple(plans)


class AllUsersReader(DataSourceReader):
    """Read the newest snapshot of each user."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        table = self._table = open_table(options)
        self._options = dict(options)
        self._columns = projected(table.schema, _without_user(schema), table.name)
        self.place, self.objects, self.schema = Place.of(options), table.store.url, arrow_schema(schema)

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {"place": self.place, "schema": self.schema, "objects": self.objects}

    def partitions(self) -> Sequence[InputPartition]:
        target = number_of(self._options, "splitBytes", MAX_SPLIT_BYTES) or MAX_SPLIT_BYTES
        where = wanted_rows(self._table, option(self._options, "where"), ())
        splits: list[InputPartition] = []
        held: list[tuple[str, ScanPlan]] = []
        size = 0
        for user in self._table.users():
            plan = self._table.of_user(user).outline(self._columns or self._table.schema.names[:1], where)
            if not plan.tasks and not plan.hot:
                continue
            held.append((user, replace(plan, snapshot=replace(plan.snapshot, settings={}), stages=())))
            size += sum(task.extent.byte_size for task in plan.tasks) + sum(len(batch.payload) for batch in plan.hot)
            if size >= target or len(held) >= MAX_USERS:
                splits.append(UsersSplit(held))
                held, size = [], 0
        return [*splits, *([UsersSplit(held)] if held else [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, UsersSplit):
            return  # what Spark sends when there is nothing to read
        footers = Footers(self.place.open_objects(self.objects))
        for user, plan in partition.plans:
            kinds = {column.name: column.type for column in plan.question.schema} | {USER_COLUMN: DataType("string")}
            for batch in scan(prune_blocks(plan, footers), footers):
                if batch.num_rows:
                    yield to_spark(self._with_user(batch, user), self.schema, kinds)

    def _with_user(self, batch: pa.RecordBatch, user: str) -> pa.RecordBatch:
        """Put whose the rows are where Spark expects it."""
        own = iter(batch.schema.names)
        names = [USER_COLUMN if field.name == USER_COLUMN else next(own) for field in self.schema]
        whose = pa.repeat(pa.scalar(user), batch.num_rows)
        return pa.RecordBatch.from_arrays([whose if n == USER_COLUMN else batch.column(n) for n in names], names)


def are_all(options: Mapping[str, str]) -> bool:
    """Whether options ask for the rows of all users."""
    users = option(options, "users")
    if users is not None and users.lower() != "all":
        raise InvalidInputError("option users is all; one user is chosen with user", got=users, kind="bad_option")
    for name in ("user", "snapshot", "asOf"):
        if users is not None and option(options, name) is not None:
            raise InvalidInputError(f"all users are read as they are: leave option {name} out", kind="bad_option")
    return users is not None


def schema_of_all(table: TableHandle) -> StructType:
    """Return the columns of a table, and whose each row is."""
    check_no_user_column(table)
    return StructType([*spark_schema(table.schema).fields, StructField(USER_COLUMN, StringType())])


def _without_user(schema: StructType) -> StructType:
    return StructType([each for each in schema.fields if each.name != USER_COLUMN])
