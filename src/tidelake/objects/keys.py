"""Name every object of a lake, and say which names are keys.

A key is a relative path of plain segments, and every store takes the same keys::

    catalog.sqlite                                                  the catalog of a lake folder; not an object
    data/{namespace}/{table}/extents/{id}{suffix}                   extents of a shared table
    data/{namespace}/{table}/extents/job-{id}/{id}{suffix}          extents and their coverage, of a Spark job
    data/{namespace}/{table}/coverage/extents/{id}.cov              what one extent covers
    data/{namespace}/{table}/coverage/table/{sequence}-{id}.cov     what a table covered at a sequence
    data/{namespace}/{table}/vectors/{column}-{id}.codebook         how the vectors of a column, by its id, are coded
    {the key of an extent}.{column}-{id}.vec                        where an extent's vectors lie in a codebook

of tables with a scope for each user, or with a key, at the root of the store, in the folder of a scope::

    {namespace}/{table}/                                            the scope of a shared table
    {namespace}/{table}/{user}/                                     the scope of one user
        batch-{number}.parquet                                      what was appended or flushed
        compact-{id}.parquet                                        what was compacted or written again
        job-{id}/{id}.parquet                                       extents and their coverage, of a Spark job
        manifest.json, manifest-part-{text}.json                    what the scope holds, for others to read

what a server asks for, beside either::

    _access/tokens/{id}.json                                        a token's hash, and what it allows
    _access/used/{id}/{day}/{server}.json                           what of its quota a token used on a day, by server

what rows are brought from, beside either::

    _sources/{name}/definition-{number}.json                        a source, without its secrets
    _sources/{name}/status.json                                     how it does

and, under the root of a table whose catalog is a transaction log::

    _timeseries_log/CURRENT                                         a hint: the newest version
    _timeseries_log/0000000001.json                                 one commit
    _timeseries_log/_checkpoints/0000000001.json                    the state after a commit
    _coverage/segments/{id}.roar                                    coverage of one segment
    _coverage/table/{version}-{id}.roar                             coverage of the table
    data/{name}                                                     segments

It does not know what is at a key.
"""

from __future__ import annotations

import functools
import re
from urllib.parse import quote

from tidelake.errors import InvalidInputError

CATALOG_FILE = "catalog.sqlite"
LOG_FOLDER = "_timeseries_log"
LOG_CURRENT = f"{LOG_FOLDER}/CURRENT"
TEMPORARY_PREFIX = ".tide-tmp-"
PROBE_PREFIX = ".tide-probe-"
DATA_FOLDER, COVERAGE_FOLDER = "data", "_coverage"
ACCESS_FOLDER, SOURCES_FOLDER = "_access", "_sources"
OWN_FOLDERS = (
    DATA_FOLDER,
    COVERAGE_FOLDER,
    LOG_FOLDER,
    ACCESS_FOLDER,
    SOURCES_FOLDER,
)  # no namespaces of tables whose extents are segments

MAX_KEY_BYTES = 1024  # S3's own limit, in which it counts a bucket's prefix too
MAX_SEGMENT_BYTES = 255  # a file name can be no longer
KEPT_NAMES = 1024  # that were encoded last, and are encoded again at once
MAX_VERSION = 9_999_999_999  # ten digits, so that names sort as numbers do

_ID, _NAME = "[0-9a-f]{32}", "[A-Za-z0-9_%-]+"
_SCOPE = (
    rf"(?!(?i:data|_coverage|_timeseries_log|_access|_sources)/){_NAME}/{_NAME}(?:/{_NAME})?"  # the folder of a scope
)
_CODEBOOK = rf"vectors/[0-9]+-{_ID}\.codebook"
_OWN_KEY = re.compile(
    rf"""data/{_NAME}/{_NAME}/(?:
        extents/(?:job-{_ID}/)?{_ID}\.(?:tlm|parquet)
        | extents/job-{_ID}/{_ID}\.cov
        | coverage/(?:extents/{_ID}|table/[0-9]+-{_ID})\.cov
        | {_CODEBOOK}
    ) | {_SCOPE}/(?:
        batch-[0-9]+\.parquet
        | compact-{_ID}\.parquet
        | job-{_ID}/{_ID}\.(?:parquet|cov)
    )""",
    re.VERBOSE,
)
_OWN_FOLDER = re.compile(
    rf"""data(?:/{_NAME}(?:/{_NAME}(?:
        /extents(?:/job-{_ID})?
        | /coverage(?:/extents|/table)?
        | /vectors
    )?)?)? | {_SCOPE}(?:/job-{_ID})?""",
    re.VERBOSE,
)
_JOB_FOLDER = re.compile(rf"(?:data/{_NAME}/{_NAME}/extents|{_SCOPE})/job-{_ID}")
_SEGMENT_TABLE = re.compile(rf"(?!(?i:data|_coverage|_timeseries_log|_access|_sources)/){_NAME}/{_NAME}")
_BATCH = re.compile(rf"({_SCOPE})/batch-([0-9]{{1,18}})\.parquet")
_MANIFEST = re.compile(rf"{_SCOPE}/manifest(?:-part-[A-Za-z0-9_-]+)?\.json")
_SIDECAR = re.compile(rf"_coverage/(?:segments/segcov-{_ID}|table/[0-9]+-tblcov-{_ID})\.roar")
_SIDE_OF = re.compile(r"(.+\.(?:tlm|parquet))\.[0-9]+-[0-9a-f]{16}\.vec")
_CODEBOOK_KEY = re.compile(rf"data/{_NAME}/{_NAME}/vectors/([0-9]+)-({_ID})\.codebook")
_UNFINISHED = re.compile(rf"(?:[^/]+/)*{re.escape(TEMPORARY_PREFIX)}[0-9a-f]{{16}}")
_PROBE = re.compile(rf"data/{re.escape(PROBE_PREFIX)}[0-9a-f]{{16}}")

UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")


def check_key(key: str) -> str:
    """Return the key if every store can hold it and it cannot leave the store; else InvalidInputError."""
    if reason := unfit_reason(key):
        raise InvalidInputError("not a key", reason=reason, key=ascii(key[:80]), kind="bad_key")
    return key


def table_prefix(namespace: str, table: str) -> str:
    """Name the folder of all that a table has written."""
    return check_key(f"data/{_encoded(namespace)}/{_encoded(table)}")


def extent_key(namespace: str, table: str, extent_id: str, suffix: str) -> str:
    """Name an extent of a table; a hostile name stays one segment."""
    return check_key(f"{table_prefix(namespace, table)}/extents/{_encoded(extent_id)}{suffix}")


def scope_folder(namespace: str, table: str, user: str = "") -> str:
    """Name the folder of a scope whose extents are segments; a hostile name of a user stays one folder."""
    if namespace.lower() in OWN_FOLDERS:
        raise InvalidInputError(
            f"tables of users and tables with a key cannot be in the namespace {namespace}: the lake's own objects are "
            "in a folder of that name",
            kind="bad_name",
        )
    own = f"/{user_folder(user)}" if user else ""
    return check_key(f"{_encoded(namespace)}/{_encoded(table)}{own}")


def user_folder(user: str) -> str:
    """Name the folder of a user inside of a table's: percent-encoded but for letters, digits, _ and -."""
    return _encoded(user)


def batch_key(folder: str, number: int) -> str:
    """Name the segment of a scope that was appended or flushed under a number."""
    return check_key(f"{folder}/batch-{number}.parquet")


def compact_key(folder: str, extent_id: str) -> str:
    """Name a segment of a scope that was compacted or written again."""
    return check_key(f"{folder}/compact-{_encoded(extent_id)}.parquet")


def batch_number(key: str) -> tuple[str, int] | None:
    """Return the folder and the number of a segment that has one; None for any other key."""
    found = _BATCH.fullmatch(key)
    return None if found is None else (found[1], int(found[2]))


def codebook_key(namespace: str, table: str, column_id: int, codebook_id: str) -> str:
    """Name the codebook of a column of vectors."""
    return check_key(f"{table_prefix(namespace, table)}/vectors/{column_id}-{_encoded(codebook_id)}.codebook")


def vector_sidecar_key(extent_key: str, codebook: str) -> str:
    """Name where an extent's vectors lie in a codebook, by the keys of both."""
    found = _CODEBOOK_KEY.fullmatch(codebook)
    if found is None:
        raise InvalidInputError("not the key of a codebook", key=ascii(codebook[:80]), kind="bad_key")
    return f"{extent_key}.{found[1]}-{found[2][:16]}.vec"


def extent_of_sidecar(key: str) -> str | None:
    """Return the key of the extent whose vectors an object codes; None if it does not."""
    found = _SIDE_OF.fullmatch(key)
    return None if found is None else found[1]


def is_codebook_key(key: str) -> bool:
    """Whether an object says how the vectors of a column are coded."""
    return _CODEBOOK_KEY.fullmatch(key) is not None


def log_commit_key(version: int) -> str:
    """Name the commit of a version; creating it is the commit."""
    return f"_timeseries_log/{_digits(version)}.json"


def log_checkpoint_key(version: int) -> str:
    """Name the checkpoint of a version."""
    return f"_timeseries_log/_checkpoints/{_digits(version)}.json"


def extent_coverage_key(namespace: str, table: str, extent_id: str) -> str:
    """Name what an extent covers."""
    return check_key(f"{table_prefix(namespace, table)}/coverage/extents/{_encoded(extent_id)}.cov")


def united_coverage_key(namespace: str, table: str, sequence: int, coverage_id: str) -> str:
    """Name what a table covered at a sequence."""
    return check_key(f"{table_prefix(namespace, table)}/coverage/table/{sequence}-{_encoded(coverage_id)}.cov")


def segment_coverage_key(coverage_id: str) -> str:
    """Name the coverage sidecar of one segment."""
    return check_key(f"_coverage/segments/{_encoded(coverage_id)}.roar")


def table_coverage_key(version: int, coverage_id: str) -> str:
    """Name the coverage of a whole table as of a version."""
    return check_key(f"_coverage/table/{version}-{_encoded(coverage_id)}.roar")


def log_data_key(name: str) -> str:
    """Name a segment of a table whose catalog is a transaction log."""
    return check_key(f"data/{name}")


def is_own_key(key: str) -> bool:
    """Whether a lake would name an object so: an extent, coverage, a codebook, or the codes of an extent's vectors."""
    return _OWN_KEY.fullmatch(extent_of_sidecar(key) or key) is not None


def is_own_folder(folder: str) -> bool:
    """Whether a lake would name a folder of its objects so."""
    return _OWN_FOLDER.fullmatch(folder) is not None


def is_manifest_key(key: str) -> bool:
    """Whether an object beside the segments of a scope says what it holds; it is named by no catalog."""
    return _MANIFEST.fullmatch(key) is not None


def is_segment_table(folder: str) -> bool:
    """Whether a folder could be that of a table whose extents are segments, with the folders of its users in it."""
    return _SEGMENT_TABLE.fullmatch(folder) is not None


def is_job_folder(key: str) -> bool:
    """Whether a key is the folder of a Spark job, which is registered for all that is below it."""
    return _JOB_FOLDER.fullmatch(key) is not None


def is_sidecar_key(key: str) -> bool:
    """Whether coverage beside a transaction log is named so; other programs name theirs alike."""
    return _SIDECAR.fullmatch(key) is not None


def is_unfinished(key: str) -> bool:
    """Whether a folder store would name an unfinished write so."""
    return _UNFINISHED.fullmatch(key) is not None


def is_probe_key(key: str) -> bool:
    """Whether an object was written to find out if a store keeps its conditions."""
    return _PROBE.fullmatch(key) is not None


def unfit_reason(key: str) -> str | None:
    if not key:
        return "it is empty"
    if UNFIT.search(key):
        return "it has a control character or a backslash"
    if len(key.encode()) > MAX_KEY_BYTES:
        return f"it is longer than {MAX_KEY_BYTES} bytes"
    segments = key.split("/")
    for segment in segments:
        if segment in ("", ".", ".."):
            return "it is absolute, or has an empty segment, . or .."
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"a segment is longer than {MAX_SEGMENT_BYTES} bytes"
        if segment.startswith(TEMPORARY_PREFIX):
            return f"{TEMPORARY_PREFIX} is for unfinished writes"
    if segments[0].startswith(CATALOG_FILE):
        return f"{CATALOG_FILE} is the catalog's, beside the objects"
    return None


@functools.lru_cache(KEPT_NAMES)
def _encoded(name: str) -> str:
    """Percent-encode all but letters, digits, _ and -, so that a name is one harmless segment."""
    if not name or UNFIT.search(name.replace("\\", "")):
        raise InvalidInputError("a name is empty or has a control character", name=ascii(name[:80]), kind="bad_name")
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def _digits(version: int) -> str:
    if not 0 <= version <= MAX_VERSION:
        raise InvalidInputError("no such version", version=version, allowed=f"0..{MAX_VERSION}")
    return f"{version:010d}"
