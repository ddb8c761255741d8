"""The rewrite engine: small laws, applied bottom-up until none applies.

A rule is a function of one node, annotated with the class it looks at (or a union of classes), that returns the node to
put in its place, or None (or the node itself) where it does not apply. Its docstring states the law. A rule set is a
tuple of rules; the first that applies wins.

    def add_zero(e: Add) -> Expr | None:
        \"\"\"x + 0  =>  x\"\"\"
        match e:
            case Add(x, Const(0)):
                return x
        return None

    RULES = (add_zero, ...)
    rewrite(root, RULES)

A rule sees nodes whose children are in normal form already; what it returns is brought to normal form in turn. Rules of
one set must end: a set that goes round in a circle, or grows a program without end, is an `InternalError` that names
the rules at work.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from tilewright.core.node import Node
from tilewright.core.walk import postorder
from tilewright.report.errors import InternalError

N = TypeVar("N", bound=Node)

STEPS_AT_LEAST = 10_000
STEPS_FOR_EACH_NODE = 200


class Rule(Protocol):
    """A function from a node of some class to its replacement or None; the class is read off the annotation."""

    __name__: str
    __doc__: str | None

    def __hash__(self) -> int: ...

    def __call__(self, node: Any, /) -> Node | None: ...


Watch = Callable[[Rule, Node, Node], None]
"""Called at each step with the rule, the node before and the node after."""


def rewrite(
    root: N,
    rules: Sequence[Rule],
    memo: dict[Node, Node] | None = None,
    *,
    limit: int | None = None,
    watch: Watch | None = None,
) -> N:
    """The normal form of the root under the rules; the root itself when no rule applies anywhere.

    `memo` maps nodes to normal forms: give the same one to calls with the same rules to share work. `limit` bounds the
    number of steps of this call; by default it grows with the size of the program. Raises InternalError when the rules
    cycle or exceed it.
    """
    return cast(N, _Rewriting(root, tuple(rules), {} if memo is None else memo, limit, watch).run())


@functools.lru_cache(maxsize=256)
def dispatch(rules: tuple[Rule, ...], node_class: type[Node]) -> tuple[Rule, ...]:
    """The rules of the set that look at nodes of this class, in order."""
    return tuple(rule for rule in rules if issubclass(node_class, subject(rule)))


@functools.lru_cache(maxsize=4096)
def subject(rule: Rule) -> tuple[type[Node], ...]:
    """The node classes a rule looks at, from the annotation of its parameter. Raises InternalError for no rule."""
    names = [name for name in getattr(rule, "__annotations__", {}) if name != "return"]
    if len(names) != 1:
        raise InternalError(f"{rule.__name__} is no rule", why="a rule has one parameter, annotated with a node class")
    if not (rule.__doc__ or "").strip():
        raise InternalError(f"rule {rule.__name__} states no law", mend="give it a docstring such as: x + 0  =>  x")
    annotation = rule.__annotations__[names[0]]
    if isinstance(annotation, str):
        scope = getattr(rule, "__globals__", None) or vars(sys.modules[rule.__module__])
        annotation = eval(annotation, scope)
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    classes = typing.get_args(annotation) if union else (annotation,)
    if not all(isinstance(c, type) and issubclass(c, Node) for c in classes):
        raise InternalError(f"{rule.__name__} is no rule", why=f"{annotation} is no node class")
    return classes


class _Rewriting:
    """One call of `rewrite`: the stack of nodes in progress and the steps taken.

    `becomes` maps a node in progress to the node whose normal form it shares. A node in progress that is needed again
    for its own normal form shows a circle.
    """

    def __init__(
        self,
        root: Node,
        rules: tuple[Rule, ...],
        memo: dict[Node, Node],
        limit: int | None,
        watch: Watch | None,
    ) -> None:
        self.root = root
        self.memo = memo
        self.limit = limit
        self.watch = watch
        self.steps = 0
        self.becomes: dict[Node, Node] = {}
        self.recent: deque[Rule] = deque(maxlen=32)
        self.rules = rules
        self.rules_of: dict[type[Node], tuple[Rule, ...]] = {}

    def run(self) -> Node:
        memo, becomes = self.memo, self.becomes
        stack = [self.root]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            waiting = [becomes[node]] if node in becomes else list(node.children())
            waiting = [n for n in waiting if n not in memo]
            if waiting:
                self._check_progress(waiting)
                stack.extend(reversed(waiting))
                continue
            if node in becomes:
                memo[node] = memo[becomes.pop(node)]
            else:
                self._settle(node)
        return memo[self.root]

    def _settle(self, node: Node) -> None:
        """Takes one step at a node whose children are in normal form, or finds it in normal form itself."""
        children = node.children()
        normal = tuple([self.memo[c] for c in children])
        if normal != children:
            self.becomes[node] = node.rebuild(normal)
            return
        applicable = self.rules_of.get(type(node))
        if applicable is None:
            applicable = self.rules_of[type(node)] = dispatch(self.rules, type(node))
        for rule in applicable:
            after = rule(node)
            if after is not None and after is not node:
                self._count(rule, node, after)
                self.becomes[node] = after
                return
        self.memo[node] = node

    def _count(self, rule: Rule, before: Node, after: Node) -> None:
        self.steps += 1
        self.recent.append(rule)
        if self.watch is not None:
            self.watch(rule, before, after)
        if self.limit is None and self.steps == STEPS_AT_LEAST:
            size = sum(1 for _ in postorder(self.root))
            self.limit = max(STEPS_AT_LEAST, STEPS_FOR_EACH_NODE * size)
        if self.limit is not None and self.steps > self.limit:
            raise self._endless(f"after {self.steps} steps", after)

    def _check_progress(self, waiting: list[Node]) -> None:
        """A node in progress that is needed for its own normal form will never have one."""
        for node in waiting:
            if node in self.becomes:
                raise self._endless("a node came back to itself", node)

    def _endless(self, why: str, node: Node) -> InternalError:
        names = ", ".join(dict.fromkeys(rule.__name__ for rule in self.recent))
        laws = "\n".join(dict.fromkeys(f"{r.__name__}: {_law(r)}" for r in self.recent))
        return InternalError(f"rewriting does not end: {names}", where=_indented(laws), why=f"{why}: {node!r}")


def _law(rule: Rule) -> str:
    return (rule.__doc__ or "").strip().split("\n", 1)[0]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
