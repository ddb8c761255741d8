"""The ways in which files stray from ONNX that ONNX Runtime reads nevertheless, and so do we, with a warning each.

Only what has one plausible meaning is here. Where two parts of a file contradict each other about what is computed (two
versions of an operator set, element types of outputs), the file is refused.
"""

from __future__ import annotations

from tilewright.frontends.build.remarks import Kind

_RENAME = "give each its own name"

IR_VERSION = Kind(
    "the version of the file's format is not a known one",
    "the file is read as the newest known version",
    "set model.ir_version, or convert the model with the onnx package that wrote it",
)
OPSET_TWICE = Kind(
    "an operator set is imported twice", "both imports name the same version", "keep one entry of model.opset_import"
)
OPSET_MISSING = Kind(
    "an operator set is used that the model does not import",
    "its newest known version is taken",
    "add it to model.opset_import",
)
UNSORTED = Kind("the nodes of a graph are not in order", "nodes run in an order that fits", "sort them topologically")
NODE_NAMES = Kind("two nodes have the same name", "they are told apart by the values that they give", _RENAME)
ATTRIBUTE_TWICE = Kind("a node has an attribute twice", "the last one is taken", "keep one of them")
INITIALIZER_TWICE = Kind("two initializers have the same name", "the last one is taken", _RENAME)
INITIALIZER_UNUSED = Kind("an initializer is used by nothing", "it is left out", "remove it from graph.initializer")
INITIALIZER_INPUT = Kind(
    "an input has a default value in the file",
    "it is a constant, and no input of the program",
    "remove it from graph.input, or its value from graph.initializer",
)
OUTPUT_TWICE = Kind("two outputs have the same name", "the program gives it once", _RENAME)
NEGATIVE_SIZE = Kind(
    "a dimension is declared with a negative size",
    "it is dynamic, and no other dimension's equal",
    "give the dimension a name in place of the size",
)
OTHER_SHAPE = Kind(
    "a value is declared with another shape than it has",
    "it has the shape that its node gives",
    "correct the declaration: onnx.shape_inference.infer_shapes after clearing graph.value_info",
)
OTHER_TYPE = Kind(
    "a value is declared with another element type than it has",
    "it has the type that its node gives",
    "correct the declaration, or clear graph.value_info",
)
NO_SUCH_VALUE = Kind(
    "a type is declared of a value that does not exist", "it is left out", "remove it from graph.value_info"
)
