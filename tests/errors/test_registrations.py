"""Operators and handlers that a program gets wrong: what each is told, and at which line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from added_operators import DOMAIN, ScaledSum, model, node, registered, snake_of
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import const
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.op import REGISTRY
from tilewright.loops.build import load
from tilewright.loops.nodes import Buffer

pytestmark = pytest.mark.usefixtures("nothing_stays")


def told(run: Callable[[], object]) -> str:
    """The message of a UserError, without line numbers."""
    with pytest.raises(tw.UserError) as caught:
        run()
    return re.sub(
        r"line \d+", "line …", re.sub(r"\S*(?=added_operators\.py|test_registrations\.py)", "", str(caught.value))
    )


def lines(*text: str) -> str:
    return "\n".join(text)


def compile_sum(op: tw.Operator) -> tw.Executable:
    """A graph with the operator, which has the name and attributes of the scaled sum."""
    tw.register(op)
    return tw.compile(tw.parse("graph main[n](x: f32[n, 8]) -> y:\n  y: f32[n] = scaled_sum(x)\n"))


def compile_snake(function: Callable[..., Any], **given: Any) -> tw.Executable:
    tw.elementwise("snake", **given)(function)
    return tw.compile(tw.parse("graph main(x: f32[8], a: f32[8]) -> y:\n  y: f32[8] = snake(x, a)\n"))


class TestNames:
    def test_of_the_package(self) -> None:
        class Add(ScaledSum):
            name = "add"

        assert told(lambda: tw.register(Add())) == lines(
            "there is an operator add already",
            "at:   the operators of the package",
            "fix:  give it another name",
        )

    def test_of_another_operator(self) -> None:
        tw.register(ScaledSum())
        assert told(lambda: tw.register(ScaledSum())) == lines(
            "there is an operator scaled_sum already",
            "at:   added_operators.py, line …, meaning",
            "fix:  take the other one away first: tilewright.unregister(op)",
        )

    @pytest.mark.parametrize("name", ["com.example.snake", "Snake", "for", "", "ſ"])
    def test_that_cannot_be_written(self, name: str) -> None:
        assert told(lambda: tw.elementwise(name)(snake_of)) == lines(
            f"cannot register an operator of the name {name!r}",
            "at:   added_operators.py, line …, snake_of",
            "why:  it names kernels and blocks: it is of small letters, digits and _, and no word of the language",
            'fix:  name = "my_operator"',
        )

    def test_operators_of_the_package_stay(self) -> None:
        tw.unregister(REGISTRY["add"])
        assert "add" in REGISTRY


class TestTraits:
    @pytest.mark.parametrize("pattern", [tw.Pattern.VIEW, tw.Pattern.SHAPE])
    def test_a_pattern_without_code(self, pattern: tw.Pattern) -> None:
        op = ScaledSum()
        op.pattern = pattern
        assert told(lambda: tw.register(op)) == lines(
            "the trait pattern of the operator scaled_sum has no meaning",
            "at:   added_operators.py, line …, meaning",
            f"why:  it is {pattern}, and pattern is Pattern.MAP, Pattern.REDUCE or Pattern.OPAQUE: others have no code",
            "fix:  pattern = tilewright.Pattern.OPAQUE",
        )

    @pytest.mark.parametrize("trait", ["moves", "takes_padding", "subtracts"])
    def test_a_trait_of_operators_of_the_package(self, trait: str) -> None:
        op = ScaledSum()
        setattr(op, trait, True)
        assert told(lambda: tw.register(op)) == lines(
            f"the trait {trait} of the operator scaled_sum has no meaning",
            "at:   added_operators.py, line …, meaning",
            f"why:  it is True, and {trait} is for operators of the package, whose attributes tell more",
            f"fix:  {trait} = False",
        )

    def test_attributes_of_a_type_that_none_can_have(self) -> None:
        class Odd(tw.Attributes):
            value: complex

        op = ScaledSum()
        op.attributes = Odd
        assert told(lambda: tw.register(op)) == lines(
            "the attributes of the operator scaled_sum have a type that none can have",
            "at:   added_operators.py, line …, meaning",
            "why:  Odd.value: no attribute can have the type <class 'complex'>",
            "fix:  take bool, int, float, str, DType, Const, Expr, TensorType, Enum, or tuples of them",
        )

    def test_a_reduction_that_says_it_is_a_map(self) -> None:
        op = ScaledSum()
        op.pattern = tw.Pattern.MAP
        assert told(lambda: compile_sum(op)) == lines(
            "the definition of the operator scaled_sum is not valid",
            "func scaled_sum[n](x: f32[n, 8], y: f32[n]):",
            "  for i in 0..n, k in 0..8:",
            "    block scaled_sum(vi = i, reduce vk = k):",
            "      init: y[vi] = 0.0",
            "      y[vi] += x[vi, vk] * 1.0",
            "why:  its pattern is MAP, and a map is one block that stores to each point of its one output",
            "      (written at added_operators.py, line …, define)",
            "fix:  pattern = tilewright.Pattern.OPAQUE",
        )

    def test_an_element_wise_one_that_reads_elsewhere(self) -> None:
        class Turned(ScaledSum):
            pattern = tw.Pattern.MAP
            elementwise = True

            def infer(self, context, inputs, attrs):  # type: ignore[no-untyped-def]
                return inputs

            def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
                (x,), (y,) = inputs, outputs
                build.compute(self.name, y, lambda i: load(x, x.shape[0] - 1 - i))

        tw.register(Turned())
        graph = tw.parse("graph main(x: f32[8]) -> y:\n  y: f32[8] = scaled_sum(x)\n")
        assert told(lambda: tw.compile(graph)) == lines(
            "the definition of the operator scaled_sum is not valid",
            "func scaled_sum(x: f32[8], y: f32[8]):",
            "  for i in 0..8:",
            "    block scaled_sum(vi = i):",
            "      y[vi] = x[7 - vi]",
            "why:  it is elementwise, and reads x[7 - vi] for the point vi",
            "      (written at test_registrations.py, line …, define)",
            "fix:  elementwise = False",
        )


class TestFunctions:
    def test_a_type_rule_that_raises(self) -> None:
        class Broken(ScaledSum):
            def infer(self, context, inputs, attrs):  # type: ignore[no-untyped-def]
                return (inputs[1],)

        assert told(lambda: compile_sum(Broken())) == lines(
            "the type rule of the operator scaled_sum failed",
            "at:   test_registrations.py, line …, in infer: return (inputs[1],)",
            "why:  IndexError: tuple index out of range",
        )

    def test_a_type_rule_that_gives_no_types(self) -> None:
        class Broken(ScaledSum):
            def infer(self, context, inputs, attrs):  # type: ignore[no-untyped-def]
                return inputs[0]

        assert told(lambda: compile_sum(Broken())) == lines(
            "the type rule of the operator scaled_sum gives no answer that can be used",
            "at:   test_registrations.py, line …, infer",
            "why:  a TensorType came, and it is a tuple of types",
            "fix:  return (inputs[0],)",
        )

    def test_a_type_rule_that_refuses(self) -> None:
        tw.register(ScaledSum())
        text = "graph main(x: i32[8]) -> y:\n  y: i32[] = scaled_sum(x)\n"
        assert "scaled_sum takes floats, not i32[8]" in told(lambda: tw.compile(tw.parse(text)))

    def test_a_meaning_that_raises(self) -> None:
        class Broken(ScaledSum):
            def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
                return (inputs[0] / inputs[0].no_such,)

        tw.register(Broken())
        graph = tw.parse("graph main(x: f32[2, 8]) -> y:\n  y: f32[2] = scaled_sum(x)\n")
        module = tw.Module({"main": graph}, {}, "main")
        assert told(lambda: evaluate(module, [np.ones((2, 8), np.float32)])) == lines(
            "the meaning of the operator scaled_sum failed",
            "at:   test_registrations.py, line …, in meaning: return (inputs[0] / inputs[0].no_such,)",
            "why:  AttributeError: 'numpy.ndarray' object has no attribute 'no_such'",
        )

    @pytest.mark.parametrize(
        ("result", "message"),
        [
            (np.zeros(2), ["gives no answer that can be used", "a ndarray came, and it is a tuple of arrays"]),
            ((np.zeros(2),), ["gave float64[2]", "its type is f32[2], here f32[2]"]),
            ((np.zeros(3, np.float32),), ["gave float32[3]", "its type is f32[2], here f32[2]"]),
            ((), ["gave 0 arrays", "its type rule gives 1 types"]),
        ],
    )
    def test_a_meaning_that_disagrees_with_the_type_rule(self, result: object, message: list[str]) -> None:
        class Broken(ScaledSum):
            def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
                return result

        tw.register(Broken())
        graph = tw.parse("graph main(x: f32[2, 8]) -> y:\n  y: f32[2] = scaled_sum(x)\n")
        module = tw.Module({"main": graph}, {}, "main")
        text = told(lambda: evaluate(module, [np.ones((2, 8), np.float32)]))
        assert text.startswith(f"the meaning of the operator scaled_sum {message[0]}\nat:   test_registrations.py")
        assert f"why:  {message[1]}" in text

    def test_a_definition_that_raises(self) -> None:
        class Broken(ScaledSum):
            def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
                build.compute("y", outputs[0], lambda i, j: load(inputs[0], i, j))

        text = told(lambda: compile_sum(Broken()))
        assert text.startswith(
            "the definition of the operator scaled_sum failed\nat:   test_registrations.py, line …, in"
        )
        assert "why:  TypeError:" in text

    def test_a_definition_that_is_no_program(self) -> None:
        class Broken(ScaledSum):
            def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
                other = Buffer("other", f32, (const(8),))
                build.compute("y", outputs[0], lambda i: load(other, i))

        text = told(lambda: compile_sum(Broken()))
        assert text == lines(
            "the definition of the operator scaled_sum is not valid",
            "   3 |     block y(vi = i):",
            "   4 |       y[vi] = other[vi]",
            "     |               ^^^^^",
            "why:  other is not defined here: nothing defines it before this line",
            "      (written at test_registrations.py, line …, define)",
        )

    def test_a_definition_that_writes_nothing(self) -> None:
        class Broken(ScaledSum):
            def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
                """Nothing."""

        text = told(lambda: compile_sum(Broken()))
        assert "why:  it writes nothing to y" in text

    def test_an_expression_that_raises(self) -> None:
        assert told(lambda: compile_snake(lambda x, a: x.nothing + a)) == lines(
            "the expression of the operator snake failed",
            "at:   test_registrations.py, line …, in <lambda>: assert told(lambda: compile_snake(lambda x, a: x.nothing"
            " + a)) == lines(",
            "why:  AttributeError: 'Var' object has no attribute 'nothing'",
        )

    def test_an_expression_of_another_type(self) -> None:
        def above(x: Any, a: Any) -> Any:
            return x < a

        text = told(lambda: compile_snake(above))
        assert text.startswith("the expression of the operator snake")

    def test_an_expression_that_is_none(self) -> None:
        def nothing(x: Any, a: Any) -> Any:
            return None

        assert told(lambda: compile_snake(nothing)) == lines(
            "the expression of the operator snake cannot be used",
            "at:   test_registrations.py, line …, nothing",
            "why:  a NoneType came, and it is an expression of f32 for elements of f32",
            "fix:  cast it: tilewright.expr.build.cast(…, x.dtype)",
        )

    def test_kinds_that_are_none(self) -> None:
        assert told(lambda: tw.elementwise("snake", kinds="float")) == lines(
            "cannot use 'float' as kinds",
            "why:  kinds has letters of b, i, u and f",
            'fix:  kinds="f"',
        )


class TestHandlers:
    def refused(self, function: Any, *operators: str, domain: str = DOMAIN, **given: Any) -> str:
        return told(lambda: tw.onnx_operator(domain, *(operators or ("Snake",)), **given)(function))

    def read(self, function: Any, **attrs: Any) -> str:
        """What reading a model with a node of this handler tells."""
        tw.onnx_operator(DOMAIN, "Mine")(function)
        try:
            return told(lambda: read(model([node("Mine", ["x"], ["y"], DOMAIN, name="m", **attrs)], x=[3], y=[3])))
        finally:
            tw.unregister(function)

    def test_attributes_without_a_type(self) -> None:
        def handler(b, x, *, alpha=1.0):  # type: ignore[no-untyped-def]
            return x

        assert self.refused(handler) == lines(
            "cannot register a handler",
            "at:   test_registrations.py, line …, handler",
            "why:  its attribute alpha has no type: attributes are int, float, str, tuple[int, ...], tuple[float, "
            "...], tuple[str, ...], TensorProto, GraphProto",
            "fix:  def snake(b: tilewright.Emit, x: tilewright.Tensor, *, alpha: float = 1.0) -> tilewright.Tensor",
        )

    def test_attributes_of_another_type(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor, *, alpha: complex = 1.0) -> tw.Tensor:
            return x

        assert "why:  its attribute alpha is of type complex: attributes are int," in self.refused(handler)

    def test_any_attributes(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor, **rest: float) -> tw.Tensor:
            return x

        assert "why:  its parameter rest is neither an input nor an attribute by its name" in self.refused(handler)

    def test_no_builder(self) -> None:
        def handler() -> None:
            """Nothing."""

        assert "why:  its first parameter is the builder, and it has none" in self.refused(handler)

    def test_no_function(self) -> None:
        assert self.refused(3) == lines(
            "cannot take a int for a handler",
            'fix:  write @tilewright.onnx_operator("com.example", "Snake") over a function',
        )

    def test_versions_that_there_are_none_of(self) -> None:
        assert self.refused(snake_of, since=3, until=2) == lines(
            "cannot register a handler",
            "at:   the domain com.example",
            "why:  there is no version from 3 to 2",
            'fix:  write @tilewright.onnx_operator("com.example", "Snake")',
        )

    def test_an_operator_that_has_a_handler(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
            return x

        with registered():
            assert self.refused(handler) == lines(
                "there is a handler of com.example.Snake already",
                "at:   added_operators.py, line …, read_snake",
                "why:  it is for versions 1 on of the operator set",
                "fix:  take it away first: tilewright.unregister(handler)",
            )
        assert self.refused(handler, "Celu", domain="ai.onnx") == lines(
            "there is a handler of Celu already",
            "at:   the operators of the package",
            "why:  it is for versions 1 on of the operator set",
            "fix:  take another domain",
        )

    def test_an_exception(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
            return x.nothing

        assert self.read(handler) == lines(
            "the handler of com.example.Mine failed",
            "at:   test_registrations.py, line …, in handler: return x.nothing",
            "why:  AttributeError: 'Tensor' object has no attribute 'nothing'",
            "      (for Mine 'm')",
        )

    def test_an_operator_that_there_is_not(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
            return b.map("snaek", x, 1.0)

        with registered():
            assert self.read(handler).startswith(
                "there is no operator snaek\nat:   Mine 'm'\nfix:  did you mean snake?"
            )

    def test_attributes_that_its_operator_does_not_take(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
            return b.op("scaled_sum", x, factor="two")

        with registered():
            assert self.read(handler) == lines(
                "the handler of com.example.Mine failed",
                'at:   test_registrations.py, line …, in handler: return b.op("scaled_sum", x, factor="two")',
                "why:  FactorAttributes.factor takes float, not 'two'",
                "      (for Mine 'm')",
            )

    def test_a_result_that_is_no_tensor(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> object:
            return [x]

        assert self.read(handler) == lines(
            "the handler of com.example.Mine gives no result that can be used",
            "at:   test_registrations.py, line …, handler",
            "why:  a list came, and it is a tensor or a tuple of them",
            "      (for Mine 'm')",
            'fix:  return b.map("snake", x)',
        )

    def test_what_the_handler_refuses(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
            raise b.error("it takes a matrix", "reshape its input")

        assert self.read(handler) == lines(
            "cannot read a node of the model",
            "at:   Mine 'm'",
            "why:  it takes a matrix",
            "fix:  reshape its input",
        )

    def test_nodes_that_do_not_fit_the_signature(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor, *, axes: tuple[int, ...], name: str | None = None) -> tw.Tensor:
            return x

        assert self.read(handler, axes=1.0, other=2) == lines(
            "the model uses what is not supported: 2 errors",
            "   1. Mine is not supported here",
            "      at:   Mine 'm'",
            "      why:  its attribute 'other' is not supported",
            "   2. Mine is not supported here",
            "      at:   Mine 'm'",
            "      why:  its attribute 'axes' is a float, not a list of integers",
        )

    def test_operators_without_a_handler(self) -> None:
        assert told(lambda: read(model([node("Mine", ["x"], ["y"], DOMAIN)], x=[3], y=[3]))) == lines(
            "the operator com.example.Mine is not supported",
            "at:   Mine '→ y'",
            "why:  opset 1 is imported",
            "fix:  register a handler of it: @tilewright.onnx_operator('com.example', 'Mine'), in a module of --import",
        )

    def test_versions_without_a_handler(self) -> None:
        def handler(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
            return x

        tw.onnx_operator(DOMAIN, "Mine", since=3)(handler)
        try:
            text = told(lambda: read(model([node("Mine", ["x"], ["y"], DOMAIN)], x=[3], y=[3])))
        finally:
            tw.unregister(handler)
        assert text.endswith("fix:  register a handler for this version, too: there is one since version 3")
