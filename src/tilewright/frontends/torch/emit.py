"""What handlers of ATen operators build with: the node's result as PyTorch's fake tensors tell it, and the type that
eager kernels compute in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.types import wide
from tilewright.graph.build import GraphBuilder
from tilewright.types.tensor import TensorType


class TorchEmit(Emit):
    """The builder of one graph function, and the node being read: `results` are the types of its results, None for what
    is no tensor of ours. `promote` says which type PyTorch's rules give its operands, `is_in_order` whether its first
    operand lies in order in PyTorch's memory, `is_contiguous` whether that begins where the memory does that is
    allocated for it. `pairs` are those of its operands that are complex, `gives_pairs` says whether its first result
    is."""

    def __init__(self, graph: GraphBuilder) -> None:
        super().__init__(graph)
        self.results: Sequence[TensorType | None] = ()
        self.promote: Callable[[], DType] = lambda: dtypes.f32
        self.is_contiguous = self.is_in_order = False
        self.pairs: Sequence[Tensor] = ()
        self.gives_pairs = False

    @property
    def result(self) -> TensorType:
        """The type of the node's first result."""
        first = self.results[0]
        assert first is not None
        return first

    @property
    def extents(self) -> tuple[Expr, ...]:
        """The shape of the node's first result."""
        return self.result.shape

    @property
    def computed(self) -> DType:
        """The type in which eager computes an element-wise operator: that of the result, of truth values that of the
        operands; f32 for 16-bit floats."""
        dtype = self.result.dtype
        return wide(self.promote()) if dtype.is_bool else wide(dtype)

    def operands(self, *inputs: Tensor) -> list[Tensor]:
        """The operands in the type that is computed in."""
        return [self.cast(x, self.computed) for x in inputs]

    def wide(self, x: Tensor) -> Tensor:
        """The tensor in the type that eager kernels compute in."""
        return self.cast(x, wide(x.dtype))

    def done(self, x: Tensor, n: int = 0) -> Tensor:
        """The tensor in the type of the node's result number `n`."""
        result = self.results[n]
        return x if result is None else self.cast(x, result.dtype)

    def is_pair(self, x: Tensor) -> bool:
        """Whether an operand is complex."""
        return any(x is pair for pair in self.pairs)

    def truth(self, x: Tensor) -> Tensor:
        """Whether each element is other than zero; NaN is."""
        return x if x.dtype.is_bool else self.map("ne", x, 0)

    def number(self, value: Number | Expr) -> Tensor:
        """A tensor of one number: bool, i64 or f64, as PyTorch takes it; of a dynamic size, its value."""
        if isinstance(value, Expr):
            return self.of_size(value)
        dtype = dtypes.bool_ if isinstance(value, bool) else dtypes.i64 if isinstance(value, int) else dtypes.f64
        return self.scalar(value, dtype)
