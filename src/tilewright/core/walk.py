"""Walks over programs as shared graphs: each distinct node is visited once, and depth costs no recursion.

A node's place in these walks follows `Node.children()`: fields declared by `reference()` are not entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from tilewright.core.node import Node

N = TypeVar("N", bound=Node)
K = TypeVar("K", bound=Node)


def nodes_in(fields: tuple[Any, ...]) -> list[Node]:
    """The nodes that the fields of a node hold, those that are only referred to among them, left before right."""
    found: list[Node] = []
    for value in fields:
        if isinstance(value, Node):
            found.append(value)
        elif type(value) is tuple:
            found += nodes_in(value)
    return found


def postorder(roots: Node | Iterable[Node]) -> Iterator[Node]:
    """Each node reachable from the roots once, children before parents, left before right."""
    done: set[Node] = set()
    stack = list(_as_roots(roots))[::-1]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        waiting = [c for c in node.children() if c not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        done.add(node)
        yield node


def preorder(roots: Node | Iterable[Node]) -> Iterator[Node]:
    """Each node reachable from the roots once, parents before children, left before right."""
    seen: set[Node] = set()
    stack = list(_as_roots(roots))[::-1]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack += node.children()[::-1]


def transform(
    root: N,
    change: Callable[[Node], Node],
    memo: dict[Node, Node] | None = None,
    stays: Callable[[Node], bool] | None = None,
) -> N:
    """Rewrites bottom-up: `change` sees each distinct node once, its children already rewritten.

    `change` returns its argument for "no change"; where nothing changes below the root, the root itself is returned.
    `memo` maps nodes to what became of them; giving one shares work between calls, and its entries are taken as they
    are. Of a node that `stays`, neither it nor anything in it is looked at. The result is of the root's kind if
    `change` keeps kinds, which is the caller's promise.
    """
    memo = {} if memo is None else memo
    if root not in memo and stays is not None and stays(root):
        memo[root] = root
    stack: list[Node] = [root]
    while stack:
        node = stack[-1]
        if node in memo:
            stack.pop()
            continue
        children = node._found
        waiting = [c for c in children if c not in memo]
        if waiting and stays is not None:
            kept = [c for c in waiting if stays(c)]
            if kept:
                memo.update(zip(kept, kept, strict=True))
                waiting = [c for c in waiting if c not in memo]
        if waiting:
            waiting.reverse()
            stack += waiting
            continue
        stack.pop()
        changed = tuple([memo[c] for c in children])
        memo[node] = change(node if changed == children else node.refilled(changed))
    return cast(N, memo[root])


def substitute(root: N, replacements: Mapping[K, Node]) -> N:
    """The root with each node that is a key replaced, wherever it is shared; what is put in is not searched again."""
    return transform(root, _same, cast(dict[Node, Node], dict(replacements)))


def _same(node: Node) -> Node:
    return node


def _as_roots(roots: Node | Iterable[Node]) -> Iterable[Node]:
    return (roots,) if isinstance(roots, Node) else roots
