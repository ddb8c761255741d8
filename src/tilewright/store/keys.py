"""Keys: the SHA-256 of everything an entry depends on, each part under its label.

Two calls give the same key exactly when they name the same labels with values of the same kind and content. Labels,
kinds and lengths are hashed along with the contents, so no two different sets of parts run together to the same
bytes.
"""

from __future__ import annotations

import hashlib

KEY_LENGTH = 64
"""A key is this many lower-case hexadecimal digits."""


def digest(**parts: str | int | bytes | bytearray | memoryview) -> str:
    """The key of an entry that depends on `parts`: text, whole numbers or bytes under labels, in any order.

    `digest(program=text, target=target.fingerprint(), compiler="1.0")`. A text and bytes of equal content differ, and
    so do the number 1 and the text "1". Bytes must be contiguous.
    """
    total = hashlib.sha256()
    for label in sorted(parts):
        kind, content = _contents(parts[label])
        name = label.encode()
        total.update(b"%s %d %d\n" % (kind, len(name), content.nbytes))
        total.update(name)
        total.update(content)
    return total.hexdigest()


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key: only then may it become part of a file name."""
    return len(text) == KEY_LENGTH and all(c in "0123456789abcdef" for c in text)


def _contents(value: str | int | bytes | bytearray | memoryview) -> tuple[bytes, memoryview]:
    match value:
        case str():
            return b"text", memoryview(value.encode())
        case int():
            return b"int", memoryview(b"%d" % value)
        case _:
            return b"bytes", memoryview(value)
