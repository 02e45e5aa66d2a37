"""Find and open the files that a load reads: on a disk that all workers share, or in a bucket.

A bucket is asked with the endpoint and the credentials of the lake, if it has any, or with those of the environment.
Credentials travel with the job and not with its pieces. It does not know what is in a file: see ``files``.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.fs

from tidelake.errors import NotFoundError, StorageError, redacted

BUCKET = "s3://"
_MAGIC = "*?["


@dataclass(frozen=True, slots=True)
class Outside:
    """Where files are: the disk, and buckets by these credentials."""

    endpoint: str | None = None
    key: str | None = None
    secret: str | None = None
    region: str | None = None

    def __repr__(self) -> str:
        return f"Outside(endpoint={redacted(self.endpoint or '')!r})"

    def find(self, path: str) -> tuple[list[str], bool]:
        """Return the files that a path, a folder or a glob names, in order; and whether it is a folder."""
        return self._find_in_bucket(path) if path.startswith(BUCKET) else _find_on_disk(path)

    def size(self, path: str) -> int:
        system, name = self._place(path)
        found = system.get_file_info(name)
        if found.type != pa.fs.FileType.File:
            raise FileNotFoundError(path)
        return int(found.size)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to be read anywhere."""
        system, name = self._place(path)
        return system.open_input_file(name)

    def lines(self, path: str) -> BinaryIO:
        """Open a file to be read by lines, from anywhere."""
        return cast(BinaryIO, io.BufferedReader(self.open(path)))

    def stream(self, path: str, compression: str | None) -> pa.NativeFile:
        """Open a file to be read from its beginning, decompressed."""
        system, name = self._place(path)
        return system.open_input_stream(name, compression=compression)

    def _place(self, path: str) -> tuple[pa.fs.FileSystem, str]:
        if path.startswith(BUCKET):
            return _bucket_system(self), path.removeprefix(BUCKET)
        return _disk_system(), path

    def _find_in_bucket(self, path: str) -> tuple[list[str], bool]:
        system, name = self._place(path)
        at = min((found for each in _MAGIC if (found := name.find(each)) >= 0), default=-1)
        base = name if at < 0 else name[:at].rpartition("/")[0]
        try:
            held = system.get_file_info(base.rstrip("/")) if base else None
            if held is not None and held.type == pa.fs.FileType.File:
                return [path], False
            listed = system.get_file_info(pa.fs.FileSelector(base, recursive=True, allow_not_found=True))
        except OSError as error:
            raise StorageError("the bucket cannot be listed", path=path, reason=error) from error
        names = sorted(each.path for each in listed if each.type == pa.fs.FileType.File)
        if at >= 0:
            names = [each for each in names if _matches(each, name)]
        return [f"{BUCKET}{each}" for each in names], at < 0


def _matches(name: str, pattern: str) -> bool:
    """Match part by part, as a shell does; ``**`` stands for any number of folders."""

    def match(parts: list[str], patterns: list[str]) -> bool:
        if not patterns:
            return not parts
        if patterns[0] == "**":
            return match(parts, patterns[1:]) or bool(parts and match(parts[1:], patterns))
        return bool(parts) and fnmatch.fnmatchcase(parts[0], patterns[0]) and match(parts[1:], patterns[1:])

    return match(name.split("/"), pattern.split("/"))


def _find_on_disk(path: str) -> tuple[list[str], bool]:
    in_folder = os.path.isdir(path)
    if in_folder:
        names = [str(each) for each in Path(path).rglob("*")]
    else:
        names = glob.glob(path, recursive=True) if glob.has_magic(path) else [path]
    return sorted(os.path.abspath(name) for name in names if os.path.isfile(name)), in_folder


@lru_cache(maxsize=1)
def _disk_system() -> pa.fs.FileSystem:
    return pa.fs.LocalFileSystem()


@lru_cache(maxsize=8)
def _bucket_system(outside: Outside) -> pa.fs.FileSystem:
    endpoint = outside.endpoint or os.environ.get("AWS_ENDPOINT_URL")
    scheme, _, host = endpoint.partition("://") if endpoint else ("https", "", "")
    region = outside.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    try:
        return pa.fs.S3FileSystem(
            access_key=outside.key,
            secret_key=outside.secret,
            endpoint_override=host or None,
            scheme=scheme,
            region=region or ("us-east-1" if endpoint else None),
            connect_timeout=10,
            request_timeout=60,
        )
    except pa.ArrowNotImplementedError as error:
        raise NotFoundError("this pyarrow cannot read buckets", reason=error, kind="no_buckets") from error
