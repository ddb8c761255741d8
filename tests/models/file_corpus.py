"""Model files of every public kind of attack, and bombs: small files that ask for more than there is.

    for name, make in CORPUS.items(): trap = make()
    for name, make in LARGE.items(): trap = make()          the same with more of something: seconds each

Each must end in bounded time and memory, in the error that is expected or in a right run. Public faults that a trap
stands for are named by their numbers; the others are faults that a compiler of its own can have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from file_seeds import node, seed, value
from onnx import ModelProto, NodeProto, TensorProto, helper

MOST = 2**63 - 1
REFUSED, FAULT, RUNS = "refused", "fault", "result"


@dataclass
class Trap:
    """A file, what is beside it, what it may end in, and the shape of each input of a run."""

    data: bytes
    ends: tuple[str, ...] = (REFUSED,)
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    hard: dict[str, str] = field(default_factory=dict)
    feeds: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """The model's file in a folder; the others are in the folder beside it, or where their names lead."""
        inside = folder / "model"
        inside.mkdir()
        for name, body in self.files.items():
            (inside / name).write_bytes(body)
        for name, target in self.links.items():
            (inside / name).symlink_to(target)
        for name, target in self.hard.items():
            os.link(inside / target, inside / name)
        path = inside / "model.onnx"
        path.write_bytes(self.data)
        return path


CORPUS: dict[str, Callable[[], Trap]] = {}
LARGE: dict[str, Callable[[], Trap]] = {}
"""Traps of as many nodes, names, layers, … as take minutes where the time grows with their square; those of `CORPUS`
have so many that recursion ends, and that what grows faster takes minutes."""


def trap(make: Callable[[], Trap]) -> Callable[[], Trap]:
    CORPUS[make.__name__] = make
    return make


def each(**cases: Callable[[], Trap]) -> None:
    CORPUS.update(cases)


def model(
    nodes: list[NodeProto], inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None, **more: Any
) -> bytes:
    arrays = {name: np.asarray(a) for name, a in (constants or {}).items()}
    return seed("g", nodes, [value(n, s) for n, s in inputs.items()], arrays, **more).data


def proto(data: bytes) -> ModelProto:
    return ModelProto.FromString(data)


# External data


def outside(**entries: str) -> bytes:
    tensor = TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in entries.items():
        tensor.external_data.add(key=key, value=text)
    return model([node("Add", "x,w")], {"x": [2]}, tensors=[tensor])


W = {"w.bin": bytes(16)}
each(
    read_through_dots_cve_2022_25882=lambda: Trap(outside(location="../../../../etc/passwd")),
    read_through_dots_inside_cve_2024_27318=lambda: Trap(outside(location="a/../../../etc/passwd"), files=W),
    read_of_an_absolute_path=lambda: Trap(outside(location="/etc/passwd")),
    write_through_dots_cve_2025_51480=lambda: Trap(outside(location="../made.bin", length="8")),
    link_out_of_the_folder_cve_2026_27489=lambda: Trap(outside(location="w.bin"), links={"w.bin": "/etc/passwd"}),
    link_to_itself=lambda: Trap(outside(location="w.bin"), links={"w.bin": "w.bin"}),
    link_to_a_device=lambda: Trap(outside(location="w.bin"), links={"w.bin": "/dev/zero"}),
    hard_link=lambda: Trap(outside(location="v.bin"), files=W, hard={"v.bin": "w.bin"}),
    unknown_keys_cve_2026_34445=lambda: Trap(outside(location="w.bin", size=str(2**62), shape="9" * 5000), files=W),
    offset_past_the_end=lambda: Trap(outside(location="w.bin", offset="12"), files=W),
    offset_below_zero=lambda: Trap(outside(location="w.bin", offset="-8"), files=W),
    offset_of_text=lambda: Trap(outside(location="w.bin", offset="0x8"), files=W),
    offset_of_many_digits=lambda: Trap(outside(location="w.bin", offset="9" * 100_000), files=W),
    length_past_the_end=lambda: Trap(outside(location="w.bin", length=str(2**63)), files=W),
    folder_as_data=lambda: Trap(outside(location=".")),
    name_with_a_zero=lambda: Trap(outside(location="w.bin\0.txt"), files=W),
    the_model_as_its_data=lambda: Trap(outside(location="model.onnx", length="8"), (REFUSED, RUNS)),
)


# Tensors and structure


def initializer(dims: list[int], data: bytes = b"", kind: int = TensorProto.FLOAT, **fields: Any) -> bytes:
    tensor = TensorProto(name="w", dims=dims, data_type=kind, raw_data=data, **fields)
    return model([node("Add", "x,w")], {"x": [2]}, tensors=[tensor])


each(
    sizes_that_overflow=lambda: Trap(initializer([2**32, 2**32])),
    sizes_that_overflow_to_two=lambda: Trap(initializer([2**63 - 1, 2**63 - 1, 2], bytes(8))),
    sizes_below_zero=lambda: Trap(initializer([-1, -2], bytes(8))),
    data_that_is_short_cve_2024_27319=lambda: Trap(initializer([1000], bytes(8))),
    data_that_is_long=lambda: Trap(initializer([2], bytes(4096))),
    data_of_a_type_that_is_none=lambda: Trap(initializer([2], bytes(8), 99)),
    packed_nibbles_that_are_short=lambda: Trap(initializer([3], bytes(1), TensorProto.INT4)),
    five_thousand_dimensions=lambda: Trap(initializer([1] * 5000, bytes(4))),
    an_empty_tensor_of_huge_sizes=lambda: Trap(initializer([0, MOST, MOST])),
    a_name_that_is_no_text=lambda: Trap(initializer([2], bytes(8)).replace(b"\x01x", b"\x01\xff")),
    opset_zero=lambda: Trap(_with_opset(0)),
    opset_of_a_billion=lambda: Trap(_with_opset(10**9)),
    opset_below_zero=lambda: Trap(_with_opset(-1)),
    no_graph=lambda: Trap(ModelProto(ir_version=10).SerializeToString()),
    a_cycle=lambda: Trap(model([node("Add", "x,z"), node("Neg", "y", "z")], {"x": [2]})),
    a_node_that_reads_itself=lambda: Trap(model([node("Add", "x,y")], {"x": [2]})),
    two_values_of_one_name=lambda: Trap(model([node("Neg", "x"), node("Exp", "x")], {"x": [2]})),
    a_value_that_nobody_makes=lambda: Trap(model([node("Add", "x,nobody")], {"x": [2]})),
    an_attribute_of_another_type=lambda: Trap(model([node("Softmax", "x", axis="text")], {"x": [2]})),
    a_name_of_a_megabyte=lambda: Trap(_long_name(), (REFUSED, RUNS)),
    a_name_of_formats=lambda: Trap(_format_names(), (REFUSED, RUNS)),
)


def _with_opset(version: int) -> bytes:
    made = proto(model([node("Neg", "x")], {"x": [2]}))
    made.opset_import[0].version = version
    return made.SerializeToString()


def _long_name() -> bytes:
    return model([node("Neg", "x", "n" * (1 << 20))], {"x": [2]}, outputs=("n" * (1 << 20),))


def _format_names() -> bytes:
    name = "%s%n%p{0}{x!r}\x1b[2J\u202e"
    return model([node("Neg", "x", name)], {"x": [2]}, outputs=(name,))


@trap
def a_function_that_calls_itself() -> Trap:
    imports = [helper.make_opsetid("own", 1)]
    call = helper.make_node("F", ["a"], ["b"], domain="own")
    made = helper.make_function("own", "F", ["a"], ["b"], [call], imports)
    return Trap(
        model([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": [2]}, functions=[made], imports=imports)
    )


def laughs(levels: int, calls: int) -> bytes:
    """Functions that call the one below several times: calls to the power of levels."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    made = [helper.make_function("own", "F0", ["a"], ["b"], [node("Neg", "a", "b")], imports)]
    for n in range(1, levels):
        names = [f"v{k}" for k in range(calls)]
        inner = [
            helper.make_node(f"F{n - 1}", [i], [o], domain="own")
            for i, o in zip(["a", *names], [*names, "b"], strict=False)
        ]
        inner[-1].output[0] = "b"
        made.append(helper.make_function("own", f"F{n}", ["a"], ["b"], inner, imports))
    last = [helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="own")]
    return model(last, {"x": [2]}, functions=made, imports=imports[1:])


each(
    a_billion_laughs=lambda: Trap(laughs(10, 10)),
    laughs_without_end=lambda: Trap(laughs(45, 2)),
    a_tower_of_functions=lambda: Trap(laughs(2000, 1)),
)


def nested(depth: int, fan: int = 1) -> bytes:
    """Branches inside of branches; with a `fan` of 2 the inner one stands in both."""
    inner = helper.make_graph([node("Neg", "x", "b0")], "g0", [], [helper.make_empty_tensor_value_info("b0")])
    data = inner.SerializeToString()
    for n in range(1, depth):
        data = _if(data, data if fan == 2 else _leaf(), f"b{n}")
    made = proto(model([node("Neg", "x")], {"x": [2]}))
    made.graph.input.append(value("c", [], TensorProto.BOOL))
    del made.graph.node[:]
    return made.SerializeToString() + _bytes_field(7, _bytes_field(1, _node(data, _leaf(), "y")))


def _leaf() -> bytes:
    return helper.make_graph(
        [node("Exp", "x", "e")], "l", [], [helper.make_empty_tensor_value_info("e")]
    ).SerializeToString()


def _node(then: bytes, other: bytes, output: str) -> bytes:
    attributes = b"".join(
        _bytes_field(5, _bytes_field(1, name) + _bytes_field(6, graph) + bytes((0xA0, 0x01, 5)))
        for name, graph in ((b"then_branch", then), (b"else_branch", other))
    )
    return _bytes_field(1, b"c") + _bytes_field(2, output.encode()) + _bytes_field(4, b"If") + attributes


def _if(then: bytes, other: bytes, output: str) -> bytes:
    made = _bytes_field(1, _node(then, other, output)) + _bytes_field(2, b"g")
    return made + _bytes_field(12, _bytes_field(1, output.encode()))


def _bytes_field(number: int, payload: bytes) -> bytes:
    length, digits = len(payload), bytearray()
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes((number * 8 + 2,)) + bytes((*digits, length)) + payload


C = {"c": True, "x": [1.0, 2.0]}
each(
    a_thousand_branches_deep=lambda: Trap(nested(1000)),
    thirty_branches_deep=lambda: Trap(nested(28), (REFUSED, RUNS), feeds=C),
    branches_on_both_sides=lambda: Trap(nested(9, 2), (REFUSED, RUNS), feeds=C),
)


# Many of something


def chain(op: str, count: int) -> bytes:
    names = ["x", *(f"v{n}" for n in range(count - 1)), "y"]
    return model([helper.make_node(op, [a], [b]) for a, b in pairwise(names)], {"x": ["n"]})


def doubled(op: str, count: int) -> bytes:
    """Each value is made of the one before, twice."""
    names = ["x", *(f"v{n}" for n in range(count - 1)), "y"]
    return model([helper.make_node(op, [a, a], [b]) for a, b in pairwise(names)], {"x": ["n"]})


def many_empty(count: int) -> bytes:
    empty = [TensorProto(name=f"w{n}", dims=[0], data_type=1) for n in range(count)]
    return model([node("Neg", "x")], {"x": [2]}, tensors=empty)


def wide(op: str, count: int) -> bytes:
    attributes = {"axis": 0} if op == "Concat" else {}
    return model([helper.make_node(op, ["x"] * count, ["y"], **attributes)], {"x": ["n"]})


def many_results(count: int) -> bytes:
    nodes = [helper.make_node("Neg", ["x"], [f"y{n}"]) for n in range(count)]
    return model(nodes, {"x": ["n"]}, outputs=tuple(f"y{n}" for n in range(count)))


each(
    ten_thousand_nodes=lambda: Trap(chain("Neg", 10_000), (REFUSED, RUNS)),
    ten_thousand_names=lambda: Trap(chain("Identity", 10_000), (REFUSED, RUNS)),
    two_hundred_layers=lambda: Trap(chain("Softmax", 200), (REFUSED, RUNS)),
    ten_thousand_empty_initializers=lambda: Trap(many_empty(10_000), (RUNS,)),
    a_sum_of_two_thousand=lambda: Trap(wide("Sum", 2000), (REFUSED, RUNS)),
    a_concatenation_of_a_thousand=lambda: Trap(wide("Concat", 1000), (REFUSED, RUNS)),
    three_hundred_results=lambda: Trap(many_results(300), (REFUSED, RUNS)),
    values_doubled_two_hundred_times=lambda: Trap(doubled("Add", 200), (RUNS,)),
    values_multiplied_two_hundred_times=lambda: Trap(doubled("Mul", 200), (RUNS,)),
    a_million_attributes=lambda: Trap(
        model([node("Constant", "", value_ints=[1] * 1_000_000)], {"x": [2]}), (REFUSED, RUNS)
    ),
    a_node_of_many_attributes=lambda: Trap(
        model([node("Neg", "x", **{f"a{n}": n for n in range(20_000)})], {"x": [2]})
    ),
)
LARGE.update(
    a_hundred_thousand_nodes=lambda: Trap(chain("Neg", 100_000), (REFUSED, RUNS)),
    a_hundred_thousand_names=lambda: Trap(chain("Identity", 100_000), (REFUSED, RUNS)),
    fifteen_hundred_layers=lambda: Trap(chain("Softmax", 1500), (REFUSED, RUNS)),
    a_hundred_thousand_empty_initializers=lambda: Trap(many_empty(100_000), (RUNS,)),
    a_sum_of_ten_thousand=lambda: Trap(wide("Sum", 10_000), (REFUSED, RUNS)),
    a_concatenation_of_three_thousand=lambda: Trap(wide("Concat", 3000), (REFUSED, RUNS)),
    two_thousand_results=lambda: Trap(many_results(2000), (REFUSED, RUNS)),
)


# Sizes


def sized(
    steps: list[NodeProto], last: str, inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None
) -> bytes:
    """A model whose result has `last` elements, which nodes compute of the size of x."""
    begin = [node("Shape", "x", "s0")]
    end = [node("Expand", f"one,{last}", "y")]
    given = {"one": np.ones(1, np.float32), "two": np.array([2]), **(constants or {})}
    return model([*begin, *steps, *end], inputs, given)


def powers(op: str, count: int, second: str = "") -> bytes:
    steps = [node(op, f"s{n},{second or f's{n}'}", f"s{n + 1}") for n in range(count)]
    return sized(steps, f"s{count}", {"x": ["n"]})


def products_of_sums(count: int) -> bytes:
    """(a + b) (c + d) (e + f) …: expanded, it has 2 to the power of `count` terms."""
    inputs = {f"x{n}": [f"a{n}"] for n in range(2 * count)}
    steps = [node("Shape", f"x{n}", f"t{n}") for n in range(2 * count)]
    steps += [node("Add", f"t{2 * n},t{2 * n + 1}", f"p{n}") for n in range(count)]
    steps += [node("Mul", f"{'s0' if n == 0 else f'q{n - 1}'},p{n}", f"q{n}") for n in range(count)]
    return sized(steps, f"q{count - 1}", {"x": ["n"], **inputs})


def extremes_of_sizes(count: int) -> bytes:
    """Maxima and quotients of sizes inside one another, each used twice."""
    steps = []
    for n in range(count):
        steps += [
            node("Div", f"s{n},two", f"h{n}"),
            node("Add", f"s{n},h{n}", f"a{n}"),
            node("Max", f"a{n},two", f"m{n}"),
        ]
        steps += [node("Mod", f"m{n},s0", f"r{n}"), node("Add", f"r{n},h{n}", f"s{n + 1}")]
    return sized(steps, f"s{count}", {"x": ["n"]})


def concatenated(count: int) -> bytes:
    names = ["x", *(f"v{n}" for n in range(count - 1)), "y"]
    return model([node("Concat", f"{a},{a}", b, axis=0) for a, b in pairwise(names)], {"x": ["n"]})


each(
    a_size_squared_sixty_times=lambda: Trap(powers("Mul", 60), (REFUSED, FAULT)),
    a_size_squared_eight_times=lambda: Trap(powers("Mul", 8), (REFUSED, FAULT)),
    a_size_doubled_three_hundred_times=lambda: Trap(powers("Add", 300), (REFUSED, FAULT)),
    a_size_times_itself_five_hundred_times=lambda: Trap(powers("Mul", 500, "s0"), (REFUSED, FAULT)),
    products_of_sums_of_twenty_sizes=lambda: Trap(products_of_sums(20), (REFUSED, FAULT, RUNS)),
    sizes_in_thirty_maxima=lambda: Trap(extremes_of_sizes(30), (REFUSED, FAULT, RUNS)),
    a_tensor_doubled_three_hundred_times=lambda: Trap(concatenated(300), (REFUSED, FAULT)),
    a_tensor_doubled_fifty_times=lambda: Trap(concatenated(50), (REFUSED, FAULT)),
)
LARGE.update(sizes_in_a_hundred_maxima=lambda: Trap(extremes_of_sizes(100), (REFUSED, FAULT, RUNS)))


# Constants that are computed while compiling


def constants_tiled(count: int) -> bytes:
    steps = [node("Tile", f"{'w' if n == 0 else f't{n - 1}'},k", f"t{n}") for n in range(count)]
    return model(
        [*steps, node("ReduceSum", f"t{count - 1}")], {}, {"w": np.ones(1000, np.float32), "k": np.array([100])}
    )


def asked(op: str, numbers: list[int], **attributes: Any) -> bytes:
    return model([node(op, "k", **attributes)], {}, {"k": np.array(numbers)})


each(
    a_constant_of_two_to_the_62=lambda: Trap(asked("ConstantOfShape", [2**62]), (REFUSED, FAULT)),
    a_constant_of_4_gibibytes=lambda: Trap(asked("ConstantOfShape", [2**30]), (REFUSED, FAULT)),
    a_constant_of_negative_size=lambda: Trap(asked("ConstantOfShape", [-5])),
    constants_tiled_again_and_again=lambda: Trap(constants_tiled(8), (REFUSED, FAULT)),
    a_range_of_two_to_the_40=lambda: Trap(
        model([node("Range", "a,b,c")], {}, {"a": np.array(0), "b": np.array(2**40), "c": np.array(1)}),
        (REFUSED, FAULT),
    ),
    a_range_of_steps_of_zero=lambda: Trap(
        model([node("Range", "a,b,c")], {}, {"a": np.array(0), "b": np.array(9), "c": np.array(0)}),
        (REFUSED, FAULT, RUNS),
    ),
    random_numbers_of_4_gibibytes=lambda: Trap(
        model([helper.make_node("RandomNormal", [], ["y"], shape=[2**30])], {}), (REFUSED, FAULT)
    ),
)


# Loops


def loop(steps: int, inner: int | None = None) -> bytes:
    ports = [value("k", [], TensorProto.INT64), value("kc", [], TensorProto.BOOL), value("s", [2])]
    results = [helper.make_empty_tensor_value_info(o) for o in ("co", "so")]
    add = node("Add", "s,x", "so")
    body = helper.make_graph([node("Identity", "kc", "co"), add], "body", ports, results)
    if inner is not None:
        deeper = proto(loop(inner)).graph.node[0]
        deeper.input[0], deeper.output[0] = "m2", "so"
        body.node.remove(add)
        body.node.append(deeper)
    constants = {"m": np.array(steps), **({"m2": np.array(inner)} if inner is not None else {})}
    return model([node("Loop", "m,,x", body=body)], {"x": [2]}, constants)


# A loop of 2**63 steps runs for as long as its model says (docs/graph.md); here steps are as many as a call waits for.
each(
    a_loop_of_fewer_than_no_steps=lambda: Trap(loop(-(2**63)), (REFUSED, RUNS)),
    a_loop_of_a_million_steps=lambda: Trap(loop(10**6), (RUNS,)),
    loops_of_no_steps_inside_a_thousand=lambda: Trap(loop(1000, -(2**63)), (RUNS,)),
)


# Attributes and inputs at run time


def x(op: str, shape: list[Any], constants: dict[str, Any], **attributes: Any) -> bytes:
    names = ",".join(["x", *constants])
    return model([node(op, names, **attributes)], {"x": shape}, constants)


IMAGE = [1, 1, 5, 5]
KERNEL = {"w": np.ones((1, 1, 3, 3), np.float32)}
NAN = float("nan")
each(
    gather_outside=lambda: Trap(x("Gather", [4], {"i": np.array([4])}), (REFUSED, FAULT)),
    gather_far_below_zero=lambda: Trap(x("Gather", [4], {"i": np.array([-(2**63)])}), (REFUSED, FAULT)),
    scatter_outside=lambda: Trap(
        x("ScatterElements", [4], {"i": np.array([9]), "u": np.ones(1, np.float32)}), (REFUSED, FAULT)
    ),
    reshape_to_other_sizes=lambda: Trap(x("Reshape", [4], {"s": np.array([3, -1])})),
    reshape_to_sizes_that_overflow=lambda: Trap(x("Reshape", [4], {"s": np.array([2**62, 4])})),
    slice_with_a_step_of_zero=lambda: Trap(
        x("Slice", [4], {"b": np.array([0]), "e": np.array([4]), "a": np.array([0]), "s": np.array([0])})
    ),
    slice_with_the_least_step=lambda: Trap(
        x("Slice", [4], {"b": np.array([3]), "e": np.array([-9]), "a": np.array([0]), "s": np.array([-(2**63)])}),
        (REFUSED, RUNS),
    ),
    pad_by_less_than_there_is=lambda: Trap(x("Pad", [4], {"p": np.array([-3, -3])})),
    pad_by_two_to_the_62=lambda: Trap(x("Pad", [4], {"p": np.array([2**62, 2**62])})),
    resize_by_zero=lambda: Trap(x("Resize", IMAGE, {"r": np.zeros(0, np.float32), "s": np.zeros(4, np.float32)})),
    resize_by_nan=lambda: Trap(x("Resize", IMAGE, {"r": np.zeros(0, np.float32), "s": np.full(4, NAN, np.float32)})),
    resize_by_a_billion=lambda: Trap(
        x("Resize", IMAGE, {"r": np.zeros(0, np.float32), "s": np.full(4, 1e9, np.float32)}), (REFUSED, FAULT)
    ),
    top_k_of_more_than_there_are=lambda: Trap(x("TopK", [4], {"k": np.array([5])})),
    one_hot_of_negative_depth=lambda: Trap(
        model([node("OneHot", "i,d,v")], {}, {"i": np.array([1]), "d": np.array(-3), "v": np.array([0.0, 1.0])})
    ),
    tile_by_two_to_the_40=lambda: Trap(x("Tile", [4], {"k": np.array([2**40])}), (REFUSED, FAULT)),
    convolution_of_odd_attributes=lambda: Trap(x("Conv", IMAGE, KERNEL, kernel_shape=[3], pads=[1], strides=[1, 1, 1])),
    convolution_with_a_stride_of_zero=lambda: Trap(x("Conv", IMAGE, KERNEL, strides=[0, 0])),
    convolution_dilated_far=lambda: Trap(x("Conv", IMAGE, KERNEL, dilations=[2**40, 2**40])),
    convolution_in_no_groups=lambda: Trap(x("Conv", IMAGE, KERNEL, group=0)),
    pool_of_a_huge_window=lambda: Trap(x("MaxPool", IMAGE, {}, kernel_shape=[2**31, 2**31]), (REFUSED, FAULT)),
    pool_padded_far=lambda: Trap(x("AveragePool", IMAGE, {}, kernel_shape=[3, 3], pads=[2**20] * 4), (REFUSED, FAULT)),
    transpose_by_what_is_no_order=lambda: Trap(x("Transpose", [2, 3], {}, perm=[0, 0])),
    split_into_more_than_there_is=lambda: Trap(x("Split", [4], {"s": np.array([2**62, 2**62, 2**62, 2**62])})),
    blocks_of_no_depth=lambda: Trap(x("DepthToSpace", [1, 4, 2, 2], {}, blocksize=0)),
    einsum_without_end=lambda: Trap(model([node("Einsum", "x,x", equation="a" * 5000)], {"x": [2]})),
    einsum_of_fifty_letters=lambda: Trap(
        model(
            [node("Einsum", "x,x", equation="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ,a->a")],
            {"x": [1] * 52},
        )
    ),
    cast_to_a_type_that_is_none=lambda: Trap(x("Cast", [2], {}, to=1000)),
)
