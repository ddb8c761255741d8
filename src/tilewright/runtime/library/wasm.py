"""Programs as modules of WebAssembly, and the JavaScript that runs one in a browser or in Node.

A module has its weights, and a custom section that says in JSON what it takes and gives:

    inputs, outputs   [name, type, dimensions]; a dimension is a number, or the number of a symbol as text
    symbols           how many sizes a call has
    faults            [text, types of its values]: what the entry point's positive results stand for

The entry point takes the record that codegen/abi.py describes, its words of 8 bytes; arrays of pointers are of 4 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.codegen.abi import CALL, ENTRY, FAULT_VALUES
from tilewright.codegen.assemble import assemble
from tilewright.codegen.pool import pool_text
from tilewright.codegen.wasm.link import link_wasm
from tilewright.codegen.wasm.objects import read_wasm
from tilewright.expr.nodes import Const, Var
from tilewright.report.errors import UserError
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.program import Program

SECTION = "tilewright"
"""The name of the custom section."""

CONSTANTS = "tilewright_constants"
"""The global that has the address of the table of weights."""

ARCHITECTURE = "wasm32"

_MATH = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "exp", "expm1", "log"),
    *("log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh"),
)
_FUNCTIONS = frozenset((*_MATH, *(f"{name}f" for name in _MATH), "fmod", "fmodf"))
"""What JavaScript can be asked for."""


def wasm_module(program: Program) -> bytes:
    """The module of a program. Raises UserError for one that no module can hold."""
    target = program.target
    if target.architecture != ARCHITECTURE:
        raise UserError(
            f"cannot make a module of WebAssembly of code for {target}",
            why="a program is for one kind of machine",
            fix='compile the model with target="wasm"',
        )
    objects = [*program.code, assemble(pool_text(target.triple, target.data_layout), target, level=0)]
    _check_functions(objects)
    note = json.dumps(_note(program), separators=(",", ":")).encode()
    constants = [constant.tobytes() for constant in program.constants]
    return link_wasm(objects, (ENTRY,), {CONSTANTS: constants}, (SECTION, note))


def _check_functions(objects: Sequence[bytes]) -> None:
    files = [read_wasm(one) for one in objects]
    defined = {s.name for file in files for s in file.symbols if s.index is not None}
    missing = {name for file in files for name, _ in file.imported} - defined - _FUNCTIONS
    if missing:
        raise UserError(
            "cannot make a module of WebAssembly of this program",
            why=f"it calls {', '.join(sorted(missing))}, which JavaScript does not have",
            fix="compile it for another target",
        )


def _note(program: Program) -> dict[str, object]:
    interface = program.interface
    if program.rooms:
        raise UserError(
            "cannot make a module of WebAssembly of this program",
            why="sizes of its results depend on data",
            fix="compile it for another target",
        )
    return {
        "inputs": [_row(interface, port) for port in interface.inputs],
        "outputs": [_row(interface, port) for port in interface.outputs],
        "symbols": len(interface.symbols),
        "faults": [[fault.text, [dtype.name for dtype in fault.dtypes]] for fault in program.faults],
    }


def _row(interface: Interface, port: Port) -> list[object]:
    dims: list[int | str] = []
    for extent in port.shape:
        if isinstance(extent, Const):
            dims.append(int(extent.value))
        elif isinstance(extent, Var) and extent in interface.symbols:
            dims.append(str(interface.symbols.index(extent)))
        else:
            raise UserError(
                f"cannot make a module of WebAssembly with {port.label}",
                why=f"the dimension {extent} of {port} is neither a number nor a size of an input",
                fix="give sizes when it is compiled: dims=",
            )
    return [port.name, port.dtype.name, dims]


def javascript(name: str) -> str:
    """A module of JavaScript that runs a program of this name."""
    values = {"NAME": name, "SECTION": SECTION, "ENTRY": ENTRY, "CONSTANTS": CONSTANTS, "WORDS": len(CALL)}
    text = _JAVASCRIPT
    for key, value in (values | {"FAULT_WORDS": 1 + FAULT_VALUES}).items():
        text = text.replace(f"${key}$", str(value))
    return text


_JAVASCRIPT = """\
// $NAME$: runs a module that Tilewright made. `await load(bytes)` gives a model, whose `run` takes and returns arrays:
//
//   const model = await load(await (await fetch("$NAME$.wasm")).arrayBuffer());
//   const {probability} = model.run({image: {data: new Float32Array(64), dims: [1, 1, 8, 8]}});

const TYPES = {
  f32: Float32Array, f64: Float64Array, i64: BigInt64Array, u64: BigUint64Array, i32: Int32Array, u32: Uint32Array,
  i16: Int16Array, u16: Uint16Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, u8: Uint8Array,
  bool: Uint8Array,
};
const WORDS = $WORDS$, FAULT_WORDS = $FAULT_WORDS$, PAGE = 65536;

export async function load(bytes) {
  const module = await WebAssembly.compile(bytes);
  const env = {};
  for (const {name} of WebAssembly.Module.imports(module)) {
    const plain = Math[name] ? name : name.replace(/f$/, "");
    env[name] = plain === "fmod" ? (a, b) => a % b : Math[plain];
  }
  const [note] = WebAssembly.Module.customSections(module, "$SECTION$");
  return new Model(await WebAssembly.instantiate(module, {env}), JSON.parse(new TextDecoder().decode(note)));
}

class Model {
  #exports; #arena = 0;

  constructor(instance, note) {
    this.#exports = instance.exports;
    this.inputs = note.inputs;
    this.outputs = note.outputs;
    this.symbols = note.symbols;
    this.faults = note.faults;
  }

  run(feeds) {
    const sizes = this.#sizes(feeds);
    const arrays = this.inputs.map(([name]) => feeds[name].data);
    const results = this.outputs.map(([name, type, dims]) => ({name, type, dims: dims.map((d) => extent(d, sizes))}));
    const {memory, $ENTRY$: enter, $CONSTANTS$: constants, tilewright_heap: heap} = this.#exports;
    for (;;) {
      let end = heap.value;
      const room = (bytes) => { const at = Math.ceil(end / 64) * 64; end = at + bytes; return at; };
      const record = room(8 * WORDS), fault = room(8 * FAULT_WORDS), symbols = room(8 * sizes.length);
      const pointers = room(4 * (arrays.length + results.length));
      const inputs = arrays.map((array) => room(array.byteLength));
      const outputs = results.map(({type, dims}) => room(TYPES[type].BYTES_PER_ELEMENT * count(dims)));
      const arena = room(this.#arena);
      const more = Math.ceil((end - memory.buffer.byteLength) / PAGE);
      if (more > 0) memory.grow(more);
      const view = new DataView(memory.buffer);
      const words = [pointers, constants.value, symbols, arena, this.#arena, fault, 1, 0, 0, 0];
      words.forEach((word, n) => view.setBigUint64(record + 8 * n, BigInt(word), true));
      sizes.forEach((size, n) => view.setBigInt64(symbols + 8 * n, BigInt(size), true));
      [...inputs, ...outputs].forEach((at, n) => view.setUint32(pointers + 4 * n, at, true));
      arrays.forEach((array, n) => {
        const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
        new Uint8Array(memory.buffer).set(bytes, inputs[n]);
      });
      const status = enter(record);
      if (status === -1n) {
        this.#arena = Number(view.getBigInt64(fault, true));
        continue;
      }
      if (status) throw new Error(this.#message(Number(status), view, fault));
      return Object.fromEntries(results.map(({name, type, dims}, n) => {
        const size = count(dims), kind = TYPES[type];
        const content = memory.buffer.slice(outputs[n], outputs[n] + size * kind.BYTES_PER_ELEMENT);
        return [name, {data: new kind(content), dims}];
      }));
    }
  }

  #sizes(feeds) {
    const sizes = new Array(this.symbols).fill(null);
    for (const [name, type, dims] of this.inputs) {
      const given = feeds[name];
      if (!given) throw new Error(`there is no input ${name}`);
      if (!(given.data instanceof TYPES[type])) throw new Error(`input ${name} is ${TYPES[type].name}: ${type}`);
      if (given.dims.length !== dims.length) throw new Error(`input ${name} has ${dims.length} dimensions`);
      given.dims.forEach((size, axis) => {
        const dim = dims[axis];
        if (typeof dim === "string") sizes[dim] ??= size;
        if (!Number.isSafeInteger(size) || size < 0 || size !== extent(dim, sizes)) {
          throw new Error(`input ${name} has the wrong shape: dimension ${axis} is ${size}, not ${extent(dim, sizes)}`);
        }
      });
      if (given.data.length !== count(given.dims)) throw new Error(`input ${name} has ${given.data.length} elements`);
    }
    return sizes;
  }

  #message(status, view, fault) {
    const [text, types] = this.faults[status - 1];
    return text.replace(/\\{(\\d+)\\}/g, (_, n) => {
      const at = fault + 8 * (1 + Number(n));
      return types[n].startsWith("f") ? view.getFloat64(at, true) : view.getBigInt64(at, true);
    });
  }
}

function extent(dim, sizes) {
  return typeof dim === "string" ? sizes[dim] : dim;
}

function count(dims) {
  return dims.reduce((a, b) => a * b, 1);
}
"""
