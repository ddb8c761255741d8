"""Reads the statements of a loops function: bodies, what a line says, and definitions under it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr import dtypes
from tilewright.expr.nodes import Add, Expr, Var
from tilewright.expr.tokens import Token
from tilewright.loops.names import NameParser
from tilewright.loops.nodes import (
    PREFETCHED,
    Alloc,
    Assert,
    Axis,
    AxisKind,
    Block,
    Buffer,
    CallFunction,
    Enlarge,
    Fence,
    For,
    Guard,
    If,
    Let,
    Load,
    LoopKind,
    Prefetch,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.report.errors import UserError
from tilewright.target.instructions import INSTRUCTIONS, Instruction, named
from tilewright.types.scopes import Scope

DEEPEST = 60
"""How many bodies may stand inside one another."""

_LOOPS = {k.value: k for k in LoopKind}
_ALONE = (LoopKind.THREAD, LoopKind.INSTRUCTION)


class StatementParser(NameParser):
    """Reads statements, with the names that are visible where they stand."""

    # bodies

    def _body(self) -> Stmt:
        """`:` and the statements under it."""
        self.tokens.expect(":", "end the line with :")
        return self._close(self._open())

    def _open(self) -> bool:
        """Enters a body; whether it consists of indented lines."""
        self._visible.append({})
        self._bodies += 1
        if self._bodies > DEEPEST:
            raise self.tokens.error(f"more than {DEEPEST} bodies inside one another", fix="move some into a function")
        if self.tokens.here.kind != "line":
            return False
        self.tokens.take()
        self.tokens.expect_kind("indent", "a body", "indent the statements of the body, or write pass")
        return True

    def _close(self, several: bool) -> Stmt:
        """The statements of the body that was entered."""
        found: list[Stmt] = []
        while not (several and self.tokens.here.kind == "dedent"):
            found.extend(self._statement())
            if not several:
                break
        if several:
            self.tokens.take()
        self._bodies -= 1
        self._visible.pop()
        return found[0] if len(found) == 1 else Seq(tuple(found))

    def _end_line(self) -> None:
        self.tokens.expect_kind("line", "the end of the line", "put each statement on its own line")

    def _statement(self) -> list[Stmt]:
        token = self.tokens.here
        read = _STATEMENTS.get(token.text) if token.kind == "name" else None
        where = None if read in _WITH_BODIES else self.tokens.where_below()
        if where is not None:
            return self._with_definitions(where, lambda: self._read(token, read))
        return self._read(token, read)

    def _with_definitions(self, where: int, read: Callable[[], list[Stmt]]) -> list[Stmt]:
        """A statement with definitions under it, from the place `where` on: they are read before what uses them."""
        begin = self.tokens.jump(where)
        found: dict[str, Expr] = {}
        self._definitions.append(found)
        self.tokens.expect("where")
        self.definition(found)
        self._end_line()
        if self.tokens.here.kind == "indent":
            self.tokens.take()
            while self.tokens.here.kind != "dedent":
                self.definition(found)
                self._end_line()
            self.tokens.take()
        self.tokens.expect_kind("dedent", "the end of the definitions", "write each under the name of the first")
        end = self.tokens.jump(begin)
        statements = read()
        self._definitions.pop()
        self.tokens.jump(end)
        return statements

    def _read(self, token: Token, read: Callable[[StatementParser], list[Stmt]] | None) -> list[Stmt]:
        if read is not None:
            self.tokens.take()
            return read(self)
        if token.kind == "name" or token.text == "@":
            return [self._assignment()]
        known = ", ".join(sorted(_STATEMENTS))
        raise self.tokens.error(f"expected a statement before {token}", fix=f"begin with a buffer or one of: {known}")

    def _assignment(self) -> Stmt:
        if self.tokens.accept("@"):
            buffer, token = self._constant_buffer()
        else:
            token = self.tokens.take()
            if not self.tokens.at("["):
                raise self._no_statement(token)
            found = self._look_up(token, "buffer")
            if isinstance(found, Var):
                raise self.tokens.error(f"{token} is a variable, no buffer", token, fix="store to a buffer's element")
            buffer = found
        indices = self._indices(buffer, token)
        operator = self.tokens.here
        if self.tokens.accept("+="):
            old = Load(buffer, indices)
            value = self.combine(operator, Add, [old, self.operand(0)])
        else:
            self.tokens.expect("=", "write = and the value to store")
            value = self.operand(0)
        self._end_line()
        return Store(buffer, indices, self.resolve(value, buffer.dtype))

    def _no_statement(self, token: Token) -> UserError:
        """The error for a word that begins no statement and has no element stored to."""
        if token.text == "where":
            fix = "write them in brackets: (s0*s0 where s0 = …)"
            return self.tokens.error("definitions stand under statements without a body", token, fix=fix)
        found = next((names[token.text] for names in reversed(self._visible) if token.text in names), None)
        if isinstance(found, Var):
            why = "variables keep the value they are defined with"
            return self.tokens.error(f"{token} cannot be assigned", token, why=why, fix="store to a buffer's element")
        if found is not None:
            fix = f"name the element to store to: {token}[…]"
            return self.tokens.error(f"expected [ before {self.tokens.here}", fix=fix)
        return self.unknown(token, "statement", list(_STATEMENTS))

    # statements that begin with a word

    def _loop(self, word: str) -> list[Stmt]:
        kind, thread, instruction = _LOOPS[word], "", None
        if kind is LoopKind.THREAD:
            thread = self.tokens.name("a GPU axis").text
            self.tokens.expect("=", "write bind blockIdx.x = i in 0..n")
        if kind is LoopKind.INSTRUCTION:
            instruction = self._instruction()
        self._visible.append({})
        heads: list[tuple[Var, Expr, Expr, int, Expr | None]] = []
        while True:
            token, var = self._binder(0, "a loop variable")
            self.tokens.expect("in", f"write the range: {token} in 0..n")
            begin = self.expression(dtypes.index)
            self.tokens.expect("..", f"write the range: {token} in 0..n")
            end = self.expression(dtypes.index)
            grain = self.tokens.integer("a number of iterations") if self.tokens.accept("grain") else 1
            backward = self.expression(dtypes.bool_) if self.tokens.accept("backward") else None
            self._define(token, var)
            heads.append((var, begin, end, grain, backward))
            if kind in _ALONE or not self.tokens.accept(","):
                break
        nest = self._body()
        self._visible.pop()
        for var, begin, end, grain, backward in reversed(heads):
            nest = For(var, begin, end, kind, nest, thread, grain, instruction, backward)
        return [nest]

    def _instruction(self) -> Instruction:
        token = self.tokens.name("an instruction")
        found = named(token.text)
        if found is None:
            raise self.unknown(token, "instruction", INSTRUCTIONS)
        self.tokens.expect("=", f"write instruct {token} = l in 0..8")
        return found

    def _block(self) -> list[Stmt]:
        name, _ = self.tokens.quoted_name("a block")
        self.tokens.expect("(", "write the axes in brackets, or ()")
        axes: list[Axis] = []
        tokens: list[Token] = []
        while not self.tokens.at(")"):
            kind = AxisKind.REDUCE if self.tokens.accept("reduce") else AxisKind.SPATIAL
            token, var = self._binder(0, "a block axis")
            self.tokens.expect("=", f"bind the axis: {token} = i")
            axes.append(Axis(var, kind, self.expression(dtypes.index)))
            tokens.append(token)
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate axes with commas, and close the bracket")
        self._visible.append({})
        for token, axis in zip(tokens, axes, strict=True):
            self._define(token, axis.var)
        where = self.expression(dtypes.bool_) if self.tokens.accept("where") else None
        self.tokens.expect(":", "end the line with :")
        several = self._open()
        init = self._body() if self.tokens.accept("init") else None
        body = self._close(several)
        self._visible.pop()
        return [Block(name, tuple(axes), body, init, where)]

    def _alloc(self) -> list[Stmt]:
        makers = [self._buffer(Scope.ARENA)]
        while self.tokens.accept(","):
            makers.append(self._buffer(Scope.ARENA))
        scope = self._scope()
        at = self.tokens.accept("at")
        offset = self.expression(dtypes.index) if at else None
        if at and len(makers) > 1:
            raise self.tokens.error("one offset for several buffers", at, fix="allocate each on its own line")
        self._end_line()
        return [Alloc(make(scope), offset) for make in makers]

    def _let(self) -> list[Stmt]:
        token, var = self._binder(None, "a name")
        self.tokens.expect("=", f"write let {token} = value")
        value = self.expression(None)
        self._end_line()
        if value.dtype is not dtypes.index:
            var = Var(token.text, value.dtype)
        self._define(token, var)
        return [Let(var, value)]

    def _if(self) -> list[Stmt]:
        cond = self.expression(dtypes.bool_)
        then = self._body()
        otherwise = self._body() if self.tokens.accept("else") else None
        return [If(cond, then, otherwise)]

    def _while(self) -> list[Stmt]:
        return [While(self.expression(dtypes.bool_), self._body())]

    def _assert(self) -> list[Stmt]:
        cond = self.expression(dtypes.bool_)
        self.tokens.expect(",", 'give a message: assert cond, "message"')
        message = self.tokens.string()
        values: list[Expr] = []
        while self.tokens.accept(","):
            values.append(self.expression(None))
        self._end_line()
        return [Assert(cond, message, tuple(values))]

    def _reserve(self) -> list[Stmt]:
        size = self.expression(dtypes.index)
        self._end_line()
        return [Reserve(size)]

    def _enlarge(self) -> list[Stmt]:
        fix = "name a symbol of the function: enlarge room to n*4"
        token = self.tokens.here
        room = self.expression(dtypes.index)
        if not isinstance(room, Var):
            raise self.tokens.error("only a symbol can be enlarged", token, fix=fix)
        self.tokens.expect("to", fix)
        least = self.expression(dtypes.index)
        self._end_line()
        return [Enlarge(room, least)]

    def _guard(self) -> list[Stmt]:
        begin = self.expression(dtypes.index)
        self.tokens.expect("..", "write guard BEGIN..END")
        end = self.expression(dtypes.index)
        self._end_line()
        return [Guard(begin, end)]

    def _view(self) -> list[Stmt]:
        make = self._buffer(Scope.ARENA)
        self.tokens.expect("=", "name the buffer that it is a view of: view b: f32[8] = a")
        source = self._argument()
        offset = self.expression(dtypes.index) if self.tokens.accept("at") else None
        self._end_line()
        return [View(make(source.scope), source, offset)]

    def _publish(self) -> list[Stmt]:
        buffer = self._argument()
        fix = "write publish BUFFER as argument 3, sizes 1"
        self.tokens.expect("as", fix)
        self.tokens.expect("argument", fix)
        argument = self.tokens.integer("the place of the pointer")
        self.tokens.expect(",", fix)
        self.tokens.expect("sizes", fix)
        symbol = self.tokens.integer("the place of the first size")
        self._end_line()
        return [Publish(buffer, argument, symbol)]

    def _prefetch(self) -> list[Stmt]:
        token = self.tokens.here
        place = self.expression()
        if not isinstance(place, Load):
            raise self.tokens.error(
                "only an element of a buffer can be prefetched", token, fix="write prefetch a[i + 8]"
            )
        level = self.tokens.integer("the level of a cache") if self.tokens.accept("into") else 1
        if level not in PREFETCHED:
            raise self.tokens.error(f"nothing is prefetched into {level}", token, fix="write into 2, or leave it out")
        self._end_line()
        return [Prefetch(place, level)]

    def _fence(self) -> list[Stmt]:
        self._end_line()
        return [Fence()]

    def _call(self) -> list[Stmt]:
        callee, _ = self.tokens.quoted_name("a function")
        symbols: tuple[Expr, ...] = ()
        if self.tokens.at("["):
            symbols = self.listed("[", "]", lambda: self.expression(dtypes.index))
        self.tokens.expect("(", "write the buffers in brackets")
        arguments: list[Buffer] = []
        while not self.tokens.at(")"):
            arguments.append(self._argument())
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate buffers with commas, and close the bracket")
        self._end_line()
        return [CallFunction(callee, symbols, tuple(arguments))]

    def _pass(self) -> list[Stmt]:
        self._end_line()
        return []

    def _scoped(self) -> list[Stmt]:
        body = self._body()
        return [body if isinstance(body, Seq) else Seq((body,))]


_STATEMENTS: dict[str, Callable[[StatementParser], list[Stmt]]] = {
    "block": StatementParser._block,
    "alloc": StatementParser._alloc,
    "let": StatementParser._let,
    "if": StatementParser._if,
    "while": StatementParser._while,
    "assert": StatementParser._assert,
    "reserve": StatementParser._reserve,
    "enlarge": StatementParser._enlarge,
    "guard": StatementParser._guard,
    "view": StatementParser._view,
    "publish": StatementParser._publish,
    "call": StatementParser._call,
    "pass": StatementParser._pass,
    "scope": StatementParser._scoped,
    "prefetch": StatementParser._prefetch,
    "fence": StatementParser._fence,
}


def _reading_loop(word: str) -> Callable[[StatementParser], list[Stmt]]:
    return lambda parser: parser._loop(word)


_STATEMENTS.update({word: _reading_loop(word) for word in _LOOPS})
_WITH_BODIES = [_STATEMENTS[word] for word in ("block", "if", "while", "scope", *_LOOPS)]
