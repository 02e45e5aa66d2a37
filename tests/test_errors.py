"""Show that errors say enough, cross processes whole, and are caught by what the caller does next."""

from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tidelake import errors
from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    CorruptExtent,
    InvalidInputError,
    InvalidRangeError,
    NotFoundError,
    OverlapError,
    QueryError,
    SchemaError,
    StorageError,
    TidelakeError,
    UnavailableError,
)

KINDS = {
    TidelakeError: "error",
    ConflictError: "conflict",
    CommitUnknownError: "commit_unknown",
    NotFoundError: "not_found",
    AlreadyExistsError: "already_exists",
    InvalidInputError: "invalid_input",
    QueryError: "query",
    InvalidRangeError: "invalid_range",
    SchemaError: "schema",
    OverlapError: "overlap",
    StorageError: "storage",
    CorruptError: "corrupt",
    CorruptExtent: "corrupt_extent",
    UnavailableError: "unavailable",
}


def raise_conflict() -> None:
    raise ConflictError("commit lost the race", kind="rebase", table="logs", expected=41, found=43)


def test_errors_are_the_ones_listed_here_each_with_its_own_kind() -> None:
    classes = {value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, TidelakeError)}
    assert {cls: cls("x").kind for cls in classes} == KINDS


def test_errors_are_grouped_by_what_the_caller_does_next() -> None:
    assert {cls: cls.__bases__ for cls in KINDS if cls.__bases__ != (TidelakeError,)} == {
        TidelakeError: (Exception,),
        NotFoundError: (TidelakeError, KeyError),
        InvalidInputError: (TidelakeError, ValueError),
        QueryError: (InvalidInputError,),
        InvalidRangeError: (InvalidInputError,),
        CorruptExtent: (CorruptError,),
    }


@pytest.mark.parametrize("cls", KINDS)
def test_error_says_what_happened_then_the_facts(cls: type[TidelakeError]) -> None:
    error = cls("commit lost the race", table="logs", expected=41, found=None)
    assert str(error) == "commit lost the race table=logs expected=41 found=None"
    assert str(cls("commit lost the race")) == "commit lost the race"


@pytest.mark.parametrize("cls", KINDS)
def test_error_pickles_with_its_kind_and_facts(cls: type[TidelakeError]) -> None:
    error = cls("commit lost the race", kind="rebase", table="logs", expected=41)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(twin), twin.message, twin.kind, twin.facts, str(twin)) == (
            cls,
            "commit lost the race",
            "rebase",
            {"table": "logs", "expected": 41},
            "commit lost the race table=logs expected=41",
        )


def test_error_crosses_from_a_worker_process() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(ConflictError, match="commit lost the race table=logs expected=41 found=43") as caught,
    ):
        pool.submit(raise_conflict).result()
    assert (caught.value.kind, caught.value.facts) == ("rebase", {"table": "logs", "expected": 41, "found": 43})


def test_not_found_is_caught_as_a_key_error_and_invalid_input_as_a_value_error() -> None:
    with pytest.raises(KeyError, match="no such column column=x"):
        raise NotFoundError("no such column", column="x")
    with pytest.raises(ValueError, match="cannot be column=x"):
        raise InvalidInputError("cannot be", column="x")
