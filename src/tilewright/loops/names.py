"""What names mean while a function is read: variables, buffers and constants, and the parts that statements share."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.parse import ExprParser, Operand
from tilewright.expr.tokens import Token, Tokens
from tilewright.loops.nodes import Buffer, Instruct, Load
from tilewright.loops.text import KEYWORDS
from tilewright.target.instructions import named
from tilewright.types.scopes import Scope

_SCOPES = {s.value: s for s in Scope}


class NameParser(ExprParser):
    """Reads expressions and buffers, with what is visible at each place; `_bodies` counts the bodies around it."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self._visible: list[dict[str, Var | Buffer]] = [{}]
        self._constants: dict[str, Buffer] = {}
        self._bodies = 0

    def variable(self, token: Token) -> Expr:
        found = self._look_up(token, "variable")
        if isinstance(found, Buffer):
            indices = ", ".join("i" for _ in found.shape)
            raise self.tokens.error(
                f"{token} is a buffer, no value", token, fix=f"name one element: {token}[{indices}]"
            )
        return found

    def element(self, token: Token) -> Expr:
        buffer = self._look_up(token, "buffer")
        if isinstance(buffer, Var):
            raise self.tokens.error(f"{token} is a variable, no buffer", token, fix=f"write {token} without indices")
        return self._load(buffer, token)

    def constant(self, at: Token) -> Expr:
        buffer, token = self._constant_buffer()
        return self._load(buffer, token)

    def applied(self, token: Token, args: list[Operand]) -> Expr | None:
        instruction = named(token.text)
        if instruction is None:
            return None
        self._check_count(token, args, len(instruction.registers))
        return Instruct(
            instruction, tuple(self.resolve(a, r.dtype) for a, r in zip(args, instruction.registers, strict=True))
        )

    def _look_up(self, token: Token, what: str) -> Var | Buffer:
        for names in reversed(self._visible):
            if token.text in names:
                return names[token.text]
        kind = Var if what == "variable" else Buffer
        if self._bodies == 0:
            fix = f"make it a symbol of the function: func name[{token}](…)"
            raise self.tokens.error(f"unknown {what} {token}", token, fix=fix)
        known = [name for names in self._visible for name, found in names.items() if isinstance(found, kind)]
        raise self.unknown(token, what, known)

    def _define(self, token: Token, found: Var | Buffer) -> None:
        """Makes a name visible to the end of the innermost body."""
        if token.text in KEYWORDS:
            raise self.tokens.error(f"{token} is a word of the language", token, fix="choose another name")
        if any(token.text in names for names in self._visible):
            raise self.tokens.error(f"{token} is defined already", token, fix="choose another name")
        self._visible[-1][token.text] = found

    def _constant_buffer(self) -> tuple[Buffer, Token]:
        name, token = self.tokens.quoted_name("a constant")
        if name not in self._constants:
            fix = f"declare it at the head of the function: constant @{token}: f32[…]"
            raise self.tokens.error(f"unknown constant {token}", token, fix=fix)
        return self._constants[name], token

    def _argument(self) -> Buffer:
        if self.tokens.accept("@"):
            return self._constant_buffer()[0]
        token = self.tokens.name("a buffer")
        found = self._look_up(token, "buffer")
        if isinstance(found, Var):
            raise self.tokens.error(
                f"{token} is a variable, no buffer", token, fix="pass numbers as symbols: call f[n](x)"
            )
        return found

    def _load(self, buffer: Buffer, token: Token) -> Expr:
        return Load(buffer, self._indices(buffer, token))

    def _indices(self, buffer: Buffer, token: Token) -> tuple[Expr, ...]:
        indices = self.indices()
        if len(indices) != len(buffer.shape):
            why = f"{token} has {len(buffer.shape)} dimension{'s' if len(buffer.shape) != 1 else ''}"
            fix = "give one index for each dimension"
            raise self.tokens.error(f"{len(indices)} indices for {token}", token, why=why, fix=fix)
        return indices

    def _binder(self, least: int | None, what: str) -> tuple[Token, Var]:
        """A variable that is not visible yet: its name, and type or least value where they are written."""
        token = self.tokens.name(what)
        if self.tokens.accept(":"):
            return token, Var(token.text, self.dtype())
        if self.tokens.accept(">="):
            sign = -1 if self.tokens.accept("-") else 1
            if sign < 0 and self.tokens.accept("inf"):
                least = None
            else:
                least = sign * self.tokens.integer("a least value")
        return token, Var(token.text, dtypes.index, least)

    def _buffer(self, scope: Scope) -> Callable[..., Buffer]:
        """NAME: TYPE; the buffer is made when its scope, and whether it is finite and shared, are known."""
        token = self.tokens.name("a buffer")
        self.tokens.expect(":", f"write the type: {token}: f32[…]")
        dtype, shape = self.dtype(), self.shape()

        def make(given: Scope | None, finite: bool = False, shared: bool = False) -> Buffer:
            buffer = Buffer(token.text, dtype, shape, given or scope, finite, shared)
            self._define(token, buffer)
            return buffer

        return make

    def _scope(self) -> Scope | None:
        if not self.tokens.accept("in"):
            return None
        token = self.tokens.name("a scope")
        if token.text not in _SCOPES:
            raise self.unknown(token, "scope", _SCOPES)
        return _SCOPES[token.text]
