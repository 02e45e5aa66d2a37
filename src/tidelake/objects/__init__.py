"""Keep named bytes in a folder, in memory or in a bucket, behind one small set of verbs.

``keys`` names every object of a lake, ``protocol`` says what a store does, ``folder`` and ``remote`` are stores, and
``opening`` finds the one at a place. It does not cache, verify checksums or know what the bytes mean.
"""

from tidelake.objects.keys import (
    CATALOG_FILE,
    LOG_CURRENT,
    MAX_VERSION,
    TEMPORARY_PREFIX,
    check_key,
    extent_coverage_key,
    extent_key,
    log_checkpoint_key,
    log_commit_key,
    log_data_key,
    segment_coverage_key,
    table_coverage_key,
    table_prefix,
    united_coverage_key,
)
from tidelake.objects.opening import ensure_conditional_put, open_store, probe_conditional_put
from tidelake.objects.protocol import Buffers, Data, ObjectMeta, ObjectStore, Range, Tail

__all__ = [
    "CATALOG_FILE",
    "LOG_CURRENT",
    "MAX_VERSION",
    "TEMPORARY_PREFIX",
    "Buffers",
    "Data",
    "ObjectMeta",
    "ObjectStore",
    "Range",
    "Tail",
    "check_key",
    "ensure_conditional_put",
    "extent_coverage_key",
    "extent_key",
    "log_checkpoint_key",
    "log_commit_key",
    "log_data_key",
    "open_store",
    "probe_conditional_put",
    "segment_coverage_key",
    "table_coverage_key",
    "table_prefix",
    "united_coverage_key",
]
