"""`tilewright cache`: what the store holds, whether it is sound, and emptying it."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from tilewright.cli import options
from tilewright.cli.fit import say
from tilewright.cli.tables import counted, json_text, size, table
from tilewright.report.errors import UserError
from tilewright.report.printable import printable
from tilewright.report.progress import progress
from tilewright.runtime.bundle import Bundle
from tilewright.store import Damaged, Entry, Json, Store
from tilewright.tune import rows
from tilewright.tune.records import HEAD


class Action(StrEnum):
    """What to do with the store."""

    ls = "ls"
    verify = "verify"
    clear = "clear"


What = Annotated[Action, typer.Argument(metavar="ACTION", help="ls, verify or clear.", show_default=False)]


def cache(action: What, as_json: options.Json = False) -> int:
    """List, verify or clear what the store keeps.

    The store holds compiled code and measurements of this machine, so that a second start is quick; TILEWRIGHT_STORE
    says where it is. `verify` reads every entry, drops those that are damaged, and ends with 1 where there were any.
    Anything in the store can be made again.

    \b
    Examples:
      tilewright cache ls
      tilewright cache verify --json
      tilewright cache clear
    """
    store = Store.default()
    if store.path is None:
        raise UserError("there is no store", why="TILEWRIGHT_STORE is off", fix="set it to a folder, or leave it out")
    match action:
        case Action.ls:
            return _list(store, as_json)
        case Action.verify:
            return _verify(store, as_json)
        case Action.clear:
            return _clear(store, as_json)


def _list(store: Store, as_json: bool) -> int:
    entries = store.entries()
    held, now = sum(entry.bytes for entry in entries), time.time()
    whats = [_describe(store, entry) for entry in entries]
    if as_json:
        told = zip(entries, whats, strict=True)
        rows: list[Json] = [{"key": e.key, "bytes": e.bytes, "used": e.used, "what": what} for e, what in told]
        print(json_text({"path": str(store.path), "bytes": held, "limit_bytes": store.limit_bytes, "entries": rows}))
        return 0
    say(f"{printable(str(store.path))}: {_entries(len(entries))}, {size(held)} of at most {size(store.limit_bytes)}")
    if entries:
        cells = [(what, size(e.bytes), _age(now - e.used), e.key[:12]) for e, what in zip(entries, whats, strict=True)]
        say(f"\n{table(('what', 'size', 'last used', 'key'), cells[::-1], frozenset(('size', 'last used')), ('key',))}")
    return 0


def _verify(store: Store, as_json: bool) -> int:
    with progress("reading the store"):
        verdict = store.verify()
    if as_json:
        print(json_text({"path": str(store.path), "checked": verdict.checked, "damaged": dict(verdict.damaged)}))
    else:
        read = f"{_entries(verdict.checked)} read, {len(verdict.damaged)} damaged and dropped"
        say(f"{printable(str(store.path))}: {read}")
        for key, fault in verdict.damaged.items():
            say(f"  {key[:12]}  {printable(fault)}")
    return 1 if verdict.damaged else 0


def _clear(store: Store, as_json: bool) -> int:
    held, dropped = sum(entry.bytes for entry in store.entries()), store.clear()
    if as_json:
        print(json_text({"path": str(store.path), "dropped": dropped, "bytes": held}))
    else:
        say(f"{printable(str(store.path))}: {_entries(dropped)} dropped, {size(held)}")
    return 0


def _describe(store: Store, entry: Entry) -> str:
    """What an entry is for, as it says itself."""
    content = store.peek(entry.key)
    if content is not None and content[: len(HEAD)] == HEAD:
        kernels = bytes(content).count(b"\n") - 1
        return f"tuning of {counted(kernels, 'kernel')}"
    if content is not None and content[: len(rows.HEAD)] == rows.HEAD:
        return "a cost model for tuning"
    try:
        bundle = Bundle(content if content is not None else b"")
        return f"{bundle.about.get('model', 'a program')} for {', '.join(t.name for t in bundle.targets)}"
    except (Damaged, AttributeError):
        return "support of this machine"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _age(seconds: float) -> str:
    """`3 days ago`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{counted(int(seconds // length), unit)} ago"
    return "just now"
