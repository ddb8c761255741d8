"""The scanner of program text, shared by the parsers of all levels.

Words, numbers, strings and symbols, with the line and column where each begins; `#` starts a comment. As in Python,
lines end statements, deeper indentation opens a body (`indent`), and returning closes it (`dedent`); inside brackets
lines do not count. Text comes from untrusted files: whatever is in it, the answer is tokens or an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.report.errors import UserError
from tilewright.report.snippet import Snippet

_pattern = re.compile(
    r"""(?P<space>[ \r\t]+|\#[^\n]*)
      | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      | (?P<int>[0-9]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<symbol>\.\.|->|//|<<|>>|<=|>=|==|!=|\+=|[-+*/%&|^<>=()\[\]{}:,@~])
    """,
    re.VERBOSE,
)
_escape = re.compile(r'\\(u\{([0-9a-fA-F]{1,6})\}|[\\"ntr]|.)')
_escaped = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text: `kind` is name, int, float, string, symbol, line, indent, dedent or end."""

    kind: str
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        described = {"line": "the end of the line", "end": "the end of the text", "indent": "deeper indentation"}
        return described.get(self.kind, "the end of the body" if self.kind == "dedent" else self.text)


class Tokens:
    """The tokens of a text, read from left to right. `source` names the text in errors; `blocks` is whether lines and
    indentation count."""

    def __init__(self, text: str, source: str | None = None, *, blocks: bool = True) -> None:
        self.text = text
        self.source = source
        self._lines = text.split("\n")
        self._tokens = list(self._scan_blocks() if blocks else self._scan())
        self._position = 0
        self._bracketed: dict[int, int] | None = None

    @property
    def here(self) -> Token:
        """The next token."""
        return self._tokens[self._position]

    def ahead(self, count: int) -> Token:
        """The token `count` places after the next one."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.here
        if token.kind != "end":
            self._position += 1
        return token

    @property
    def place(self) -> int:
        """Where the next token is, for `jump`."""
        return self._position

    def jump(self, place: int) -> int:
        """Goes on at another place; the answer is the place where it was."""
        before, self._position = self._position, place
        return before

    def where_in_bracket(self) -> int | None:
        """The place of the `where` with definitions at the end of the bracket that the last token opened."""
        if self._bracketed is None:
            self._bracketed = dict(self._find_bracketed())
        return self._bracketed.get(self._position - 1)

    def _find_bracketed(self) -> Iterator[tuple[int, int]]:
        """The place of each bracket that holds definitions and of its `where`."""
        opened: list[int] = []
        last = len(self._tokens) - 1
        for place, token in enumerate(self._tokens):
            if token.kind == "symbol" and token.text in "([{":
                opened.append(place)
            elif token.kind == "symbol" and token.text in ")]}" and opened:
                opened.pop()
            elif token.text == "where" and token.kind == "name" and opened:
                name, equals = self._tokens[min(place + 1, last)], self._tokens[min(place + 2, last)]
                if name.kind == "name" and equals.text == "=":
                    yield opened[-1], place

    def where_below(self) -> int | None:
        """The place of the `where` that begins the lines under the present one."""
        place = self._position
        while self._tokens[place].kind not in ("line", "end"):
            place += 1
        below = self._tokens[place + 1 : place + 3]
        return place + 2 if [t.kind for t in below] == ["indent", "name"] and below[1].text == "where" else None

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these words or symbols."""
        return self.here.text in texts and self.here.kind in ("name", "symbol")

    def accept(self, text: str) -> Token | None:
        """The next token if it is this word or symbol, taken."""
        return self.take() if self.at(text) else None

    def expect(self, text: str, fix: str | None = None) -> Token:
        if not self.at(text):
            raise self.error(f"expected {text} before {self.here}", fix=fix or f"put {text} here")
        return self.take()

    def expect_kind(self, kind: str, what: str, fix: str) -> Token:
        if self.here.kind != kind:
            raise self.error(f"expected {what} before {self.here}", fix=fix)
        return self.take()

    def name(self, what: str) -> Token:
        """A word, which is to be `what`: the name of a loop, of a buffer …"""
        return self.expect_kind("name", what, "write a name of letters, digits, _ and inner dots")

    def quoted_name(self, what: str) -> tuple[str, Token]:
        """A word, or a string that stands for one that programs cannot write."""
        token = self.here if self.here.kind == "string" else self.name(what)
        return (self.string(), token) if token.kind == "string" else (token.text, token)

    def string(self) -> str:
        """The value of a string literal."""
        token = self.expect_kind("string", "a string", 'write text in quotation marks: "…"')

        def value(match: re.Match[str]) -> str:
            if match[2] is not None and int(match[2], 16) < 0x110000:
                return chr(int(match[2], 16))
            if match[1] not in _escaped:
                raise self.error(
                    f"unknown escape {match[0]} in a string", token, fix='use one of \\\\ \\" \\n \\t \\r \\u{…}'
                )
            return _escaped[match[1]]

        return _escape.sub(value, token.text[1:-1])

    def integer(self, what: str) -> int:
        """A plain number of at least 0, no expression."""
        token = self.expect_kind("int", what, "write a number")
        if len(token.text) > 18:
            raise self.error(f"{what} of {len(token.text)} digits", token, fix="write a number below 10**18")
        return int(token.text)

    def error(self, what: str, token: Token | None = None, *, why: str | None = None, fix: str) -> UserError:
        """The error at a token, by default the next one."""
        token = token or self.here
        where = Snippet(self.text, token.line, token.column, token.column + max(1, len(token.text)), name=self.source)
        return UserError(what, where=where, why=why, fix=fix)

    def _scan(self) -> Iterator[Token]:
        position, line, start = 0, 1, 0
        while position < len(self.text):
            if self.text[position] == "\n":
                yield Token("line", "", line, position - start + 1)
                position, line, start = position + 1, line + 1, position + 1
                continue
            match = _pattern.match(self.text, position)
            column = position - start + 1
            if match is None or match.lastgroup is None:
                raise self._unreadable(Token("symbol", self.text[position], line, column))
            if match.lastgroup != "space":
                yield Token(match.lastgroup, match.group(), line, column)
            position = match.end()
        yield Token("end", "", line, position - start + 1)

    def _unreadable(self, token: Token) -> UserError:
        if token.text == '"':
            return self.error("a string without an end", token, fix='close it on the same line with "')
        return self.error(f"the character {token.text!r} has no meaning here", token, fix="remove it")

    def _scan_blocks(self) -> Iterator[Token]:
        """Tokens with line ends that count, and indentation as brackets of its own."""
        indents, depth, fresh = [1], 0, True
        for token in self._scan():
            if token.kind == "line":
                if not fresh and depth == 0:
                    yield token
                    fresh = True
                continue
            if fresh and token.kind != "end":
                yield from self._indentation(token, indents)
                fresh = False
            if token.kind == "end":
                if not fresh:
                    yield Token("line", "", token.line, token.column)
                yield from (Token("dedent", "", token.line, token.column) for _ in indents[1:])
            elif token.kind == "symbol":
                depth = max(0, depth + (token.text in "([{") - (token.text in ")]}"))
            yield token

    def _indentation(self, first: Token, indents: list[int]) -> Iterator[Token]:
        if "\t" in self._lines[first.line - 1][: first.column - 1]:
            raise self.error("a tab in the indentation", first, fix="indent with spaces")
        if first.column > indents[-1]:
            indents.append(first.column)
            yield Token("indent", "", first.line, first.column)
        while first.column < indents[-1]:
            indents.pop()
            yield Token("dedent", "", first.line, first.column)
        if first.column != indents[-1]:
            outer = ", ".join(str(i - 1) for i in indents)
            raise self.error("this indentation matches no line above", first, fix=f"indent by one of: {outer}")
