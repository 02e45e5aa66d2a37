"""Connect to MongoDB, and say in our errors who can help when that fails.

It does not know what is asked there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pymongo
from pymongo import errors

from tidelake.connectors.definition import expanded
from tidelake.connectors.failures import raised_as_ours, refused, unreachable
from tidelake.errors import InvalidInputError, TidelakeError

CONNECT_MS = 10_000
Document = dict[str, Any]
# Codes of what somebody has to do something about: users, authorisation, authentication, names, commands.
_CONFIG = {8, 11, 13, 18, 20, 26, 33, 40573, 40415, 59, 73}
HISTORY_LOST = {280, 286, 136}  # a change stream that cannot go on; a position that the oplog has no more


def told_apart() -> AbstractContextManager[None]:
    """Raise what PyMongo raises as an error of ours: of the settings, or of a source that may answer later."""
    return raised_as_ours(errors.PyMongoError, error_of)


def connect(url: str) -> pymongo.MongoClient[Document]:
    """Open a client; variables that the address names are looked up now, and each is percent-encoded.

    Times are of UTC; what Python's own cannot hold stays a value of BSON.
    """
    with told_apart():
        try:
            return pymongo.MongoClient(
                expanded(url, quoting=True), appname="tidelake", serverSelectionTimeoutMS=CONNECT_MS,
                connectTimeoutMS=CONNECT_MS, tz_aware=True, datetime_conversion="DATETIME_AUTO",
                document_class=dict,
            )  # fmt: skip
        except (errors.ConfigurationError, errors.InvalidURI, ValueError) as error:
            raise InvalidInputError("not an address of MongoDB", kind="bad_url") from error


def error_of(error: errors.PyMongoError) -> TidelakeError:
    """Return an error of ours."""
    if isinstance(error, errors.OperationFailure) and error.code in _CONFIG:
        return refused(error, code=error.code)
    return refused(error) if isinstance(error, errors.ConfigurationError) else unreachable(error)
