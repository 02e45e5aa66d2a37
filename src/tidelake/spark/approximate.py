"""Answer Spark's APPROX NEAREST joins by the index of a table: what ``NearestRule.java`` asks when one is analysed.

``q JOIN d APPROX NEAREST 3 BY SIMILARITY vector_cosine_similarity(q.v, d.v)`` becomes a map over the rows of ``q``:
each batch of them comes to Python with the vectors that it looks for, the index of ``d`` finds in one snapshot, and the
rows of both go back side by side. A task holds the codes of the table, as any process that searches does. None, and so
Spark's own plan, is the answer wherever that could be another result, or an error: a right side that is more than
columns of a table, a column without an index of that metric, types that Arrow does not carry both ways, a catalog that
other machines cannot open. It does not know the rule that asks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.model.vectors import MIN_LENGTH
from tidelake.spark.options import known_options
from tidelake.spark.places import Place, open_table
from tidelake.vectors import quantizing
from tidelake.vectors.definition import DISTANCE, MAX_K, MAX_QUERIES, QUERY, IndexMetric, indexes_of
from tidelake.vectors.nearest import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

METRICS: Mapping[tuple[str, str], IndexMetric] = {
    ("VectorCosineSimilarity", "NearestBySimilarity"): "cosine",
    ("VectorL2Distance", "NearestByDistance"): "l2",
    ("VectorInnerProduct", "NearestBySimilarity"): "dot",
}
# What names rows of one table; an option beside these has a scan read something else.
_NAMING = {"lake", "objects", "endpoint", "accesskey", "secretkey", "region", "table", "path", "user"}
_PINNING = {"asof", "snapshot", "where"}
_LEAVES = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"}
_LEAVES |= {"date", "timestamp", "timestamp_ntz"}
_EVERYWHERE = ("postgresql:", "postgres:", "log:s3:")  # catalogs that tasks on other machines can open

log = logging.getLogger("tidelake.spark")


@dataclass(frozen=True, slots=True)
class Search:
    """What each row of a join's left side is given of a table."""

    options: Mapping[str, str]  # the table, at one snapshot, and a condition on its rows
    column: str
    dimensions: int
    metric: IndexMetric
    k: int
    columns: tuple[str, ...]  # in the order of the join's right side
    keeps_all: bool  # whether rows to which nothing is near stay

    def joined(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows of the left side, whose last column is the vector, each beside the rows nearest to it."""
        own, queries = self._queries(batch.column(batch.num_columns - 1))
        wanted, found, left = tuple(dict.fromkeys(self.columns)), list[pa.Table](), [np.empty(0, np.int64)]
        table = open_table(self.options)
        for start in range(0, len(own), MAX_QUERIES):
            near = nearest(
                table, self.column, queries[start : start + MAX_QUERIES], columns=wanted, k=self.k,
                metric=self.metric, where=self.options.get("where"),
            )  # fmt: skip
            left.append(own[start + near[QUERY].to_numpy()])
            found.append(near.drop_columns([QUERY, DISTANCE]))
        return self._beside(batch, np.concatenate(left), found, schema)

    def _beside(
        self, batch: pa.RecordBatch, left: npt.NDArray[np.int64], found: Sequence[pa.Table], schema: pa.Schema
    ) -> pa.RecordBatch:
        """Put rows of the left side, by their numbers, beside what was found for them."""
        right = np.arange(len(left))
        if self.keeps_all:
            alone = np.setdiff1d(np.arange(batch.num_rows), left)
            left, right = np.concatenate([left, alone]), np.concatenate([right, np.full(len(alone), -1)])
            order = np.argsort(left, kind="stable")  # what is near to a row stays in its order
            left, right = left[order], right[order]
        arrays = [array.take(pa.array(left)) for array in batch.columns[:-1]]
        there, rows = pa.array(right, pa.int64(), mask=right < 0), pa.concat_tables(found) if found else None
        for name, field in zip(self.columns, list(schema)[len(arrays) :], strict=True):
            one = None if rows is None else rows[name].combine_chunks().cast(field.type)
            arrays.append(pa.nulls(len(left), field.type) if one is None else one.take(there))
        return pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
        )

    def _queries(self, vectors: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return which rows have a vector that has a distance from others, and these vectors."""
        own = np.flatnonzero(vectors.is_valid().to_numpy(zero_copy_only=False))
        lists = vectors.take(pa.array(own))
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        if (lengths != self.dimensions).any():
            raise InvalidInputError(
                "a vector of the join has another length than the column's", column=self.column,
                dimensions=self.dimensions, lengths=sorted({*lengths.tolist()}), kind="bad_query_vector",
            )  # fmt: skip
        flat = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
        queries = flat.reshape(len(own), self.dimensions)
        fit = np.isfinite(queries).all(axis=1)
        if self.metric == "cosine":
            fit &= np.linalg.norm(queries, axis=1) > MIN_LENGTH
        return own[fit], queries[fit]


class Joins:
    """Say to Spark's JVM what to put in the place of a join."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def apply(self, join: Any, rule: Any) -> Any:
        """Return a plan of the same columns; None where the join is to stay."""
        try:
            return _planned(join, rule, self._spark)
        except Exception:  # what is wrong with a table is told by its reader
            log.info("an approximate join looks at every pair of rows", exc_info=True)
            return None

    class Java:
        implements = ("java.util.function.BiFunction",)


def _planned(join: Any, rule: Any, spark: SparkSession) -> Any:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidelake.spark.types import arrow_schema

    schema = StructType.fromJson(json.loads(rule.types(join)))
    ends = _ends(join)
    if ends is None or not all(_is_carried(field.dataType) for field in schema):
        return None
    search = _search_of(join, ends[1], [field.dataType for field in schema], spark)
    if search is None:
        return None
    jvm: Any = spark.sparkContext._jvm
    asking = jvm.org.apache.spark.sql.classic.Dataset.ofRows(rule.session(), rule.asking(join, ends[0]))
    numbered = DataFrame(asking, spark)
    numbered = numbered.toDF(*(f"c{at}" for at in range(len(numbered.columns))))
    arrow = arrow_schema(schema)

    def near(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield search.joined(batch, arrow)

    return numbered.mapInArrow(near, schema)._jdf.queryExecution().analyzed()


def _ends(join: Any) -> tuple[Any, Any] | None:
    """Return the two vectors that a join compares: an expression of the left side, a column of the right."""
    ranking = join.rankingExpression()
    if (ranking.getClass().getSimpleName(), join.direction().toString()) not in METRICS:
        return None
    for query, column in ((ranking.left(), ranking.right()), (ranking.right(), ranking.left())):
        is_column = column.getClass().getSimpleName() == "AttributeReference"
        if is_column and join.right().outputSet().contains(column):
            return (query, column) if query.references().subsetOf(join.left().outputSet()) else None
    return None


def _search_of(join: Any, column: Any, types: Sequence[DataType], spark: SparkSession) -> Search | None:
    """Return what is to be found for each row of the left side; None if it is not for an index."""
    from tidelake.spark.types import spark_names, spark_type

    found = _relation(join.right())
    if found is None or join.numResults() > MAX_K or join.joinType().toString() not in ("Inner", "LeftOuter"):
        return None
    relation, names = found
    options = _options_of(relation)
    if options is None or not _is_reachable(options, spark):
        return None
    table = open_table(options)
    schema, in_spark = table.schema, spark_names(table.schema)
    right = [names.get(_id(each)) for each in _each(join.right().output())]
    columns = tuple(in_spark[name] for name in right if name in in_spark)
    own = in_spark.get(names.get(_id(column), ""), "")
    index = indexes_of(table.snapshot.settings, schema).get(own)
    metric = METRICS[join.rankingExpression().getClass().getSimpleName(), join.direction().toString()]
    if len(columns) != len(right) or DISTANCE in columns or QUERY in columns:
        return None
    if index is None or index.metric != metric or not quantizing.is_available():
        return None
    own_types = [spark_type(schema[name].type).simpleString() for name in columns]
    if own_types != [each.simpleString() for each in types[len(types) - len(columns) :]]:
        return None
    pinned = {**options, "snapshot": str(table.snapshot.sequence)}
    pinned.pop("asof", None)
    keeps_all = join.joinType().toString() == "LeftOuter"
    return Search(pinned, own, index.dimensions, metric, join.numResults(), columns, keeps_all)


def _relation(plan: Any) -> tuple[Any, dict[int, str]] | None:
    """Return the table that a plan takes columns of, and nothing else, and their names in it."""
    match plan.getClass().getSimpleName():
        case "DataSourceV2Relation":
            return plan, {_id(each): each.name() for each in _each(plan.output())}
        case "SubqueryAlias" | "View":
            return _relation(plan.child())
        case "Project":
            if (below := _relation(plan.child())) is None:
                return None
            relation, names = below
            known = {}
            for each in _each(plan.projectList()):
                of = each.child() if each.getClass().getSimpleName() == "Alias" else each
                if of.getClass().getSimpleName() == "AttributeReference" and _id(of) in names:
                    known[_id(each)] = names[_id(of)]
            return relation, known
        case _:
            return None


def _options_of(relation: Any) -> dict[str, str] | None:
    """Return the options that name a relation's table; None if it is not ours, or they say more than that."""
    given = relation.options().asCaseSensitiveMap()
    match relation.table().getClass().getName():
        case name if name.startswith("tidelake."):
            options = known_options(dict(relation.table().readOptions(given)), "batch")
        case name if name.endswith(".PythonTable") and relation.table().name() == "tidelake":
            options = known_options(dict(given), "batch")
        case _:
            return None
    return options if options.keys() <= _NAMING | _PINNING else None


def _is_reachable(options: Mapping[str, str], spark: SparkSession) -> bool:
    """Whether the processes that run tasks can open the lake: they are on this machine, or its catalog is anywhere."""
    master = spark.sparkContext.master or ""
    is_here = master == "local" or master.startswith("local[")
    return is_here or Place.of(options).lake.startswith(_EVERYWHERE)


def _is_carried(kind: DataType) -> bool:
    """Whether values of one of Spark's types cross to Python as Arrow and back."""
    from pyspark.sql import types as t

    match kind:
        case t.DecimalType():
            return True
        case t.ArrayType():
            return _is_carried(kind.elementType)
        case t.StructType():
            return all(_is_carried(field.dataType) for field in kind)
        case t.MapType():
            return _is_carried(kind.keyType) and _is_carried(kind.valueType)
        case _:
            return kind.simpleString() in _LEAVES


def _each(found: Any) -> Iterator[Any]:
    """Yield the items of one of Scala's sequences."""
    return (found.apply(at) for at in range(found.size()))


def _id(attribute: Any) -> int:
    number: int = attribute.exprId().id()
    return number
