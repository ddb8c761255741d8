"""The JavaScript that runs a module of WebAssembly, in a browser or in Node.

A call lays out, behind the module's own data, its records (codegen/abi.py, codes.py), then its inputs, its results and
the arena; has the module check sizes and say what results take; and enters the program until it has the room it asks
for, as `NAME_run` of a library does (native/calls.py).
"""

from __future__ import annotations

from tilewright.codegen.abi import ARENA_TOO_SMALL, CALL, ENTRY, FAULT_VALUES, ROOM_TOO_SMALL
from tilewright.runtime.library.codes import ARRAY_WORDS, DIMS, MOST_RANK
from tilewright.runtime.library.layout import WORD
from tilewright.runtime.library.texts import VALUE
from tilewright.runtime.library.wasm import CONSTANTS, SECTION, SIZES
from tilewright.runtime.memory import UNCOUNTABLE


def javascript(name: str) -> str:
    """A module of JavaScript that runs a program of this name."""
    values: dict[str, object] = {"NAME": name, "SECTION": SECTION, "ENTRY": ENTRY, "CONSTANTS": CONSTANTS}
    values |= {"SIZES": SIZES, "MARK": f"\\x{ord(VALUE):02x}", "UNCOUNTABLE": f"{UNCOUNTABLE}n"}
    values |= {"WORDS": len(CALL), "FAULT_WORDS": 1 + FAULT_VALUES, "WORD": WORD}
    values |= {"ARRAY_WORDS": ARRAY_WORDS, "DIMS": DIMS, "MOST_RANK": MOST_RANK}
    values |= {"ARENA_TOO_SMALL": f"{ARENA_TOO_SMALL}n", "ROOM_TOO_SMALL": f"{ROOM_TOO_SMALL}n"}
    text = _JAVASCRIPT
    for key, value in values.items():
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
const WORD = $WORD$, ARRAY = WORD * $ARRAY_WORDS$, ALIGNMENT = 64, PAGE = 65536, MOST_BYTES = 2 ** 32;

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
  #exports; #note; #rooms; #arena = 0;

  // What it takes and gives: rows of a name, a type and dimensions, each a number or its name.
  constructor(instance, note) {
    this.#exports = instance.exports;
    this.#note = note;
    this.#rooms = note.rooms.map(BigInt);
    this.inputs = note.inputs;
    this.outputs = note.outputs;
  }

  // Arrays by name: {data, dims}, row-major. An Error says what is wrong with those that are given.
  run(feeds) {
    const given = this.inputs.map(([name, type]) => check(feeds, name, type));
    const call = this.#layOut(given.length);
    const {takes, gives, bytes, pointers, room} = call;
    given.forEach(({data, dims}, n) => {
      this.#put(takes + ARRAY * n, [0, data.byteLength, dims.length, ...dims.slice(0, $MOST_RANK$)]);
    });
    const status = this.#exports["$SIZES$"](takes, call.sizes, bytes, gives, call.fault, 0);
    if (status) throw this.#error(this.#note.checks, status, call.fault);
    const wanted = (n) => Number(this.#view().getBigInt64(bytes + WORD * n, true));
    const results = this.outputs.map((_, n) => room(wanted(n)));
    const inputs = given.map(({data}, n) => {
      const size = wanted(results.length + n), [name, type, dims] = this.inputs[n];
      if (data.byteLength === size) return room(size);
      const count = size / data.BYTES_PER_ELEMENT;
      throw new Error(`input ${name} has ${data.length} elements, and its shape takes ${count}`);
    });
    this.#reach(room(0), 0);
    [...inputs, ...results].forEach((at, n) => this.#view().setUint32(pointers + 4 * n, at, true));
    given.forEach(({data}, n) => {
      const content = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      new Uint8Array(this.#exports.memory.buffer).set(content, inputs[n]);
    });
    this.#enter(call, room(0));
    return this.#results(call, inputs.length);
  }

  // Where the records of a call are, and a function that gives more room behind them.
  #layOut(inputs) {
    const count = this.outputs.length, {symbols, rooms, late} = this.#note;
    const sizes = symbols + rooms.length + late.reduce((sum, n) => sum + this.outputs[n][2].length, 0);
    let end = this.#exports.tilewright_heap.value;
    const room = (bytes) => {
      const at = Math.ceil(end / ALIGNMENT) * ALIGNMENT;
      end = at + bytes;
      return at;
    };
    const call = {
      room, record: room(WORD * $WORDS$), fault: room(WORD * $FAULT_WORDS$), takes: room(ARRAY * inputs),
      gives: room(ARRAY * count), sizes: room(WORD * sizes), bytes: room(WORD * (count + inputs)),
      pointers: room(4 * (inputs + count)),
    };
    this.#reach(room(0), 0);
    return call;
  }

  // Runs the program, which asks for a larger arena or a larger size until it has what it needs. Where the arena would
  // be too large, sizes that earlier calls made larger are small again, once.
  #enter({record, fault, sizes, pointers}, arena) {
    const {memory, $ENTRY$: enter, $CONSTANTS$: constants} = this.#exports, {symbols, rooms} = this.#note;
    this.#reach(arena, this.#arena);
    for (let shrunk = false;;) {
      this.#put(record, [pointers, constants.value, sizes, arena, this.#arena, fault, 1, 0, 0, 0, 0]);
      this.#put(sizes + WORD * symbols, this.#rooms);
      const status = enter(record);
      if (status === 0n) return;
      if (status > 0n) throw this.#error(this.#note.faults, status, fault);
      const needed = this.#view().getBigInt64(fault, true);
      try {
        if (status === $ARENA_TOO_SMALL$) {
          this.#reach(arena, Number(needed));
          this.#arena = Number(needed);
        } else {
          if (needed >= $UNCOUNTABLE$) throw tooMuch(needed);
          const place = Number($ROOM_TOO_SMALL$ - status) - symbols, twice = 2n * this.#rooms[place];
          const chosen = twice > needed ? twice : needed;
          this.#rooms[place] = chosen > $UNCOUNTABLE$ ? $UNCOUNTABLE$ : chosen;
        }
      } catch (error) {
        if (shrunk || !rooms.length) throw error;
        this.#rooms = rooms.map(BigInt);
        shrunk = true;
      }
    }
  }

  // Copies of the results: those of a size that the call computed are in the arena.
  #results({gives, bytes, sizes, pointers}, inputs) {
    const view = this.#view(), {symbols, rooms, late} = this.#note;
    let at = sizes + WORD * (symbols + rooms.length);
    return Object.fromEntries(this.outputs.map(([name, type, {length: rank}], n) => {
      const isLate = late.includes(n), from = isLate ? at : gives + ARRAY * n + WORD * $DIMS$;
      const dims = Array.from({length: rank}, (_, axis) => Number(view.getBigInt64(from + WORD * axis, true)));
      if (isLate) at += WORD * rank;
      const place = view.getUint32(pointers + 4 * (inputs + n), true);
      const size = TYPES[type].BYTES_PER_ELEMENT * dims.reduce((a, b) => a * b, 1);
      return [name, {data: new TYPES[type](view.buffer.slice(place, place + size)), dims}];
    }));
  }

  #view() {
    return new DataView(this.#exports.memory.buffer);
  }

  #put(at, words) {
    const view = this.#view();
    words.forEach((word, n) => view.setBigInt64(at + WORD * n, BigInt(word), true));
  }

  // Makes the memory as large as what begins here takes.
  #reach(begin, bytes) {
    const {memory} = this.#exports, more = Math.ceil((begin + bytes - memory.buffer.byteLength) / PAGE);
    if (more <= 0) return;
    if (begin + bytes > MOST_BYTES) throw tooMuch(begin + bytes);
    try {
      memory.grow(more);
    } catch {
      throw tooMuch(begin + bytes);
    }
  }

  #error(rows, status, fault) {
    const [text, types] = rows[Number(status) - 1], view = this.#view();
    return new Error(text.replace(/$MARK$(\\d)/g, (_, n) => {
      const at = fault + WORD * (1 + Number(n));
      return types[n].startsWith("f") ? view.getFloat64(at, true) : view.getBigInt64(at, true);
    }));
  }
}

function check(feeds, name, type) {
  const array = feeds[name], kind = TYPES[type];
  if (!array) throw new Error(`there is no input ${name}`);
  const {data, dims} = array;
  if (!(data instanceof kind)) throw new Error(`input ${name} is ${type}: its data is a ${kind.name}`);
  if (!Array.isArray(dims)) throw new Error(`input ${name} has no dims, an array of its dimensions`);
  const wrong = dims.findIndex((size) => !Number.isSafeInteger(size));
  if (wrong < 0) return array;
  throw new Error(`input ${name} has a size that is no whole number: dimension ${wrong} is ${dims[wrong]}`);
}

function tooMuch(bytes) {
  const size = bytes < $UNCOUNTABLE$ ? `${bytes} bytes` : "more bytes than can be counted";
  return new Error(`the call needs more memory than it may take: its arrays and buffers take ${size}`);
}
"""
