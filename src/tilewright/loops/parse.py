"""Reads loops functions from text; the grammar is in text.py.

Whatever the text is, the answer is a function or a UserError that shows the line. A function that was read need not be
a valid program: verify.py says whether it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.expr.nodes import Var
from tilewright.expr.tokens import Token, Tokens
from tilewright.loops.nodes import Buffer, Function, Stmt
from tilewright.loops.parse_statements import StatementParser
from tilewright.loops.text import written_last
from tilewright.types.scopes import Scope


def parse(text: str, source: str | None = None) -> Function:
    """The one function in `text`; `source` names the text in errors."""
    functions = parse_all(text, source)
    if len(functions) != 1:
        tokens = Tokens(text, source)
        fix = "use parse_all for several functions" if functions else "write func name(…): …"
        raise tokens.error(f"{len(functions)} functions, not one", tokens.here, fix=fix)
    return functions[0]


def parse_all(text: str, source: str | None = None) -> tuple[Function, ...]:
    """All functions in `text`, in order."""
    tokens = Tokens(text, source)
    found: list[Function] = []
    while tokens.here.kind != "end":
        found.append(FunctionParser(tokens).function())
    return tuple(found)


class FunctionParser(StatementParser):
    """Reads one function from tokens that begin with `func`."""

    def function(self) -> Function:
        self.tokens.expect("func", "begin a function with func")
        name, _ = self.tokens.quoted_name("a function")
        symbols: list[Var] = []
        if self.tokens.at("["):
            self.listed("[", "]", lambda: self._symbol_of(symbols))
        params: list[Buffer] = []
        modes: list[Token | None] = []
        over: list[tuple[Token, int, int]] = []
        self.tokens.expect("(", "write the parameters in brackets")
        while not self.tokens.at(")"):
            moded = self.tokens.at("out", "inout") and self.tokens.ahead(1).kind == "name"
            modes.append(self.tokens.take() if moded else None)
            make = self._buffer(Scope.ARGUMENT)
            scope = self._scope()
            finite, shared = (self.tokens.accept(word) is not None for word in ("finite", "shared"))
            params.append(make(scope, finite, shared))
            over += [(*found, len(params) - 1) for found in self._over(params)]
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate parameters with commas, and close the bracket")
        source, body = self._function_body()
        made = Function(name, tuple(symbols), tuple(params), body, 0, source)
        outputs = self._outputs(made, modes)
        pairs = [(source, self._output(token, place, len(params) - outputs)) for token, source, place in over]
        return made.replace(outputs=outputs, over=tuple(pairs))

    def _over(self, params: list[Buffer]) -> Iterator[tuple[Token, int]]:
        """The inputs whose memory the last parameter may be: their places, and where that is said."""
        word = "over"
        while token := self.tokens.accept(word):
            source = self._argument()
            if source not in params[:-1]:
                raise self.tokens.error("an output is over an input before it", token, fix="name such a parameter")
            yield token, params.index(source)
            word = "or"

    def _output(self, token: Token, place: int, inputs: int) -> int:
        """The place among the outputs of a parameter that is over another one."""
        if place < inputs:
            raise self.tokens.error("only an output is over an input", token, fix="leave it out")
        return place - inputs

    def _symbol_of(self, symbols: list[Var]) -> Var:
        token, var = self._binder(0, "a symbol")
        self._define(token, var)
        symbols.append(var)
        return var

    def _outputs(self, f: Function, modes: list[Token | None]) -> int:
        if not any(modes):
            return written_last(f)
        outputs = [token for token in modes if token is not None and token.text == "out"]
        inputs = modes[: len(modes) - len(outputs)]
        early = next((token for token in outputs if token in inputs), None)
        if early is not None:
            raise self.tokens.error("an output before another parameter", early, fix="put the out parameters last")
        return len(outputs)

    def _function_body(self) -> tuple[tuple[str, ...], Stmt]:
        """The source and constants at the head of the body, and its statements."""
        source: list[str] = []
        self.tokens.expect(":", "end the line with :")
        several = self._open()
        if self.tokens.at("source") and self.tokens.ahead(1).kind == "string":
            self.tokens.take()
            source.append(self.tokens.string())
            while self.tokens.accept(","):
                source.append(self.tokens.string())
            self._end_line()
        while self.tokens.at("constant") and self.tokens.ahead(1).text == "@":
            self.tokens.take()
            self.tokens.take()
            name, token = self.tokens.quoted_name("a constant")
            if name in self._constants:
                raise self.tokens.error(f"{token} is defined already", token, fix="choose another name")
            self.tokens.expect(":", f"write the type: @{token}: f32[…]")
            self._constants[name] = Buffer(name, self.dtype(), self.shape(), Scope.CONSTANT)
            self._end_line()
        return tuple(source), self._close(several)
