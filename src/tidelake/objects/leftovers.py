"""List a store in bounded memory, and find and remove what crashes leave in a folder: unfinished writes, empty folders.

A bucket has neither of the two: a write appears whole there, and folders are only the beginnings of names. A store that
cannot list in any order but its own is listed in that. It does not know which objects are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelake.objects.folder import Folder
from tidelake.objects.protocol import ObjectMeta, ObjectStore


def listing(store: ObjectStore, prefix: str) -> Iterator[ObjectMeta]:
    """Yield all objects below a folder in any order, with as little in memory as the store allows.

    In a folder, what lies behind a symbolic link is left out.
    """
    unsorted = getattr(store, "list_unsorted", store.list)
    found: Iterator[ObjectMeta] = unsorted(prefix)
    return found


def unfinished(store: ObjectStore, prefix: str) -> Iterator[ObjectMeta]:
    """Yield the unfinished writes below a folder, of living writers too, under names that are no keys."""
    return store.unfinished(prefix) if isinstance(store, Folder) else iter(())


def remove_unfinished(store: ObjectStore, name: str, *, dry_run: bool = False) -> bool:
    """Remove an unfinished write, unless its writer lives; or say whether it would be."""
    return isinstance(store, Folder) and store.remove_unfinished(name, dry_run=dry_run)


def empty_folders(store: ObjectStore, prefix: str) -> Iterator[str]:
    """Yield the folders below a folder that hold nothing but such, the innermost first."""
    return store.empty_folders(prefix) if isinstance(store, Folder) else iter(())


def remove_folders(store: ObjectStore, folders: Iterable[str]) -> None:
    """Remove those folders that are empty by now; a writer that wants one makes it again."""
    if isinstance(store, Folder):
        store.remove_folders(folders)
