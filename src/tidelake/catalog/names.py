"""Judge the names that come from outside: of users, of pins, and of those who hold leases.

A name is judged once, where it enters. It does not know what is named.
"""

from __future__ import annotations

import unicodedata

from tidelake.errors import InvalidInputError
from tidelake.objects import user_folder

MAX_USER_BYTES = 255  # of the folder name that a user id becomes, percent-encoded
MAX_OWNER_BYTES = 255
MAX_PIN_CHARACTERS = 128


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


def _unfit_user(user: object) -> str | None:
    if not isinstance(user, str):
        return "it is not text"
    if not user:
        return "it is empty"
    if len(user) > MAX_USER_BYTES:  # before anything is done with it
        return f"it is longer than {MAX_USER_BYTES} characters"
    if not user.isprintable():
        return "it has characters that cannot be seen"
    if user != user.strip():
        return "it begins or ends with white space"
    if not unicodedata.is_normalized("NFC", user):
        return "it is not in Unicode's composed form, NFC"
    if len(user_folder(user)) > MAX_USER_BYTES:
        return f"its folder's name would be longer than {MAX_USER_BYTES} bytes"
    return None
