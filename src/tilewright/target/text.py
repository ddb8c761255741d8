"""The text that writes a target (grammar in target.py): the name that it starts with, and the features that it adds and
takes away."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..report.errors import UserError
from .features import BASE, LENGTHS, close, known_features, remove

_SIGNED = re.compile(r"[\s,]*([+-])\s*")
_END = re.compile(r"[\s,+]|-(?!v\d)|$")  # -v5 is a level that does not exist, not a feature to take away


def first_name(text: str, names: Collection[str]) -> tuple[str, str]:
    """(the longest of the names that the text starts with, what stands behind it); UserError where it is none."""
    words = text.strip().removeprefix("generic ").lstrip()
    name = max((name for name in names if _starts(words, name)), key=len, default=None)
    if name is None:
        raise UserError(
            f"unknown target {text!r}",
            why="a target is a name, then features to add or take away",
            fix=f"take one of {', '.join(names)}; with features: x86-64-v3 +avxvnni -f16c",
        )
    return name, words[len(name) :]


def _starts(words: str, name: str) -> bool:
    """Whether `name` begins `words` and ends there at a sign, a space or the end: `x86-64` does not begin `x86-64k`."""
    return words.startswith(name) and _END.match(words, len(name)) is not None


def changed_features(
    text: str, rest: str, name: str, architecture: str, features: frozenset[str]
) -> tuple[frozenset[str], list[str]]:
    """(the features after the changes in `rest`, the changes as written in a target's name). `text` is all of the text,
    `name` the target that the features are of."""
    changes: list[str] = []
    known = sorted({*known_features(architecture), *features}, key=len, reverse=True)
    at = 0
    while rest[at:].strip(" ,\t\n"):
        sign = _SIGNED.match(rest, at)
        at = sign.end() if sign else at
        feature = next((name for name in known if _starts(rest[at:], name)), None)
        if sign is None or feature is None:
            raise _unknown_feature(text, rest[sign.start() if sign else at :].strip(" ,\t\n"), name, architecture)
        at += len(feature)
        changes.append(f"{sign[1]}{feature}")
        if sign[1] == "+":
            features = close(architecture, (*features, feature))
        else:
            features = remove(architecture, features, feature)
    missing, lengths = BASE[architecture] - features, features & LENGTHS.keys()
    if missing or len(lengths) > 1:
        raise _impossible(text, architecture, missing, lengths)
    return features, changes


def _impossible(text: str, architecture: str, missing: frozenset[str], lengths: frozenset[str]) -> UserError:
    if missing:
        why = f"every {architecture} machine has {' and '.join(sorted(missing))}, which calls of functions need"
    else:
        why = f"vectors have one length, not those of {' and '.join(sorted(lengths))}"
    return UserError(f"no machine is the target {text!r}", why=why, fix="leave the change out")


def _unknown_feature(text: str, rest: str, name: str, architecture: str) -> UserError:
    known = known_features(architecture)
    return UserError(
        f"unknown feature in target {text!r}",
        where=rest,
        why=f"a change is + or - and one of {', '.join(known)}",
        fix=f"leave it out, or write for example {name} +{known[0]}",
    )
