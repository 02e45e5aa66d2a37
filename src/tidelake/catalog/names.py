"""Judge the names that come from outside: of users, of pins, and of those who hold leases; and name staged tables.

A name is judged once, where it enters. It does not know what is named.
"""

from __future__ import annotations

import functools
import re
import secrets
import unicodedata

from tidelake.errors import InvalidInputError
from tidelake.objects import user_folder

MAX_USER_BYTES = 255  # of the folder name that a user id becomes, percent-encoded
MAX_OWNER_BYTES = 255
KEPT_USERS = 1024  # that were judged last, and are asked for again at once
MAX_PIN_CHARACTERS = 128
_STAGED = re.compile(r".+__staged_[0-9a-f]{12}")


def check_user(user: str) -> str:
    """Return a user id that is one: printable text, spelled in the one way (NFC) that Unicode holds equal to others.

    Two ids that differ are two users, whatever they look like.
    """
    if reason := _unfit_user(user):
        raise InvalidInputError("not a user id", reason=reason, user=ascii(user)[:80], kind="bad_user")
    return user


def check_pin_name(name: str) -> None:
    """Refuse a name of a pin that is not plain printable text of a sane length."""
    if not name.isprintable() or name != name.strip() or not 0 < len(name) <= MAX_PIN_CHARACTERS:
        raise InvalidInputError(
            f"{name[:40]!r} is not a pin's name: up to {MAX_PIN_CHARACTERS} printable characters", kind="bad_name"
        )


def check_owner(owner: str) -> None:
    """Refuse the name of a lease's owner that is not plain printable text of a sane length."""
    if not owner.isprintable() or not 0 < len(owner.encode()) <= MAX_OWNER_BYTES:
        raise InvalidInputError(f"{owner[:40]!r} is not an owner", kind="bad_owner")


def staged_name(name: str) -> str:
    """Return the name of a table that gets its rows before it takes the place of another, or its own name."""
    return f"{name[:96]}__staged_{secrets.token_hex(6)}"


def is_staged_name(name: str) -> bool:
    """Whether a name is one that ``staged_name`` gives."""
    return _STAGED.fullmatch(name) is not None


def refuse_staged(name: str) -> None:
    """Refuse to give a table a name by which collection would take it for one that a killed query left behind."""
    if is_staged_name(name):
        raise InvalidInputError("names like this are for tables that are being made", table=name[:160], kind="bad_name")


def _unfit_user(user: object) -> str | None:
    if not isinstance(user, str):
        return "it is not text"
    if len(user) > MAX_USER_BYTES:  # before anything is done with it
        return f"it is longer than {MAX_USER_BYTES} characters"
    return _unfit_text(user)


@functools.lru_cache(KEPT_USERS)
def _unfit_text(user: str) -> str | None:
    if not user:
        return "it is empty"
    if not user.isprintable():
        return "it has characters that cannot be seen"
    if user != user.strip():
        return "it begins or ends with white space"
    if not unicodedata.is_normalized("NFC", user):
        return "it is not in Unicode's composed form, NFC"
    if len(user_folder(user)) > MAX_USER_BYTES:
        return f"its folder's name would be longer than {MAX_USER_BYTES} bytes"
    return None
