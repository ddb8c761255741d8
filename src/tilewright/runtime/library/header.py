"""The C header of a library."""

from __future__ import annotations

from tilewright.report.printable import printable
from tilewright.report.version import VERSION
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.library.codes import INTERFACE, MEANINGS, MOST_RANK
from tilewright.runtime.library.glue import Parts

_TYPES = """\
#ifndef TILEWRIGHT_TYPES
#define TILEWRIGHT_TYPES $INTERFACE$

/* What functions return: 0, or why they did nothing. NAME_error has a text. */
enum {
$CODES$
};

/* An array in the caller's memory: row-major, aligned to its elements. */
typedef struct tilewright_array {
  void *data;                /* the first element */
  int64_t bytes;             /* of memory behind data; more than the array takes is fine */
  int64_t rank;              /* how many dimensions it has */
  int64_t dims[$RANK$];
} tilewright_array;

/* An input or an output as the model has it. The library owns what it points to. */
typedef struct tilewright_port {
  const char *name;
  const char *type;          /* of its elements: "f32", "i64", ... */
  const char *shape;         /* as text: "[n, 784]" */
  int64_t element_bytes;
  int64_t rank;
  const int64_t *dims;       /* -1 where a call decides the size */
} tilewright_port;

/* Calls task(work, n) for every n of 0..count, on any threads, and returns when all have returned. */
typedef void (*tilewright_task)(void *work, int64_t n);
typedef void (*tilewright_for_all)(void *state, int64_t count, tilewright_task task, void *work);

#endif
"""

_FUNCTIONS = """\
/* What a calling thread has: scratch memory, and the text of its last error. Contexts of several threads run at once;
   one context is used by one thread at a time. */
typedef struct $NAME$_context $NAME$_context;

/* The version of this interface that the library has; TILEWRIGHT_TYPES is that of the header. */
int $NAME$_interface(void);

/* Makes a context. Where it fails, what is put at *context may be null, or a context that only tells the error; close
   it in any case. */
int $NAME$_open($NAME$_context **context);
void $NAME$_close($NAME$_context *context);

/* The text of the last error of a context. Valid until its next call. */
const char *$NAME$_error(const $NAME$_context *context);

/* How many inputs and outputs there are; one of them by its number; the number of a name, or -1. */
int64_t $NAME$_inputs(void);
int64_t $NAME$_outputs(void);
int $NAME$_input(int64_t number, tilewright_port *port);
int $NAME$_output(int64_t number, tilewright_port *port);
int64_t $NAME$_find_input(const char *name);
int64_t $NAME$_find_output(const char *name);

/* What outputs a call with inputs of these ranks and dims has: their rank, dims and bytes are set, and data is not
   looked at. A dimension that the call itself computes is -1, and bytes are 0 then. */
int $NAME$_sizes($NAME$_context *context, const tilewright_array *inputs, tilewright_array *outputs);

/* Runs the program: inputs are read, and results written to the memory of outputs, whose rank and dims are set. Outputs
   overlap neither inputs nor one another. A result of a size that the call computes is copied if there is room for it;
   where data is null it stays in the context: $NAME$_result. */
int $NAME$_run($NAME$_context *context, const tilewright_array *inputs, tilewright_array *outputs);

/* Calls of the context use up to so many threads: workers of the library, which starts and ends them. 1 at first. */
int $NAME$_set_threads($NAME$_context *context, int64_t threads);

/* Calls of the context run their loops by a function of the caller, which has so many threads; there are no workers. */
int $NAME$_set_parallel($NAME$_context *context, int64_t threads, tilewright_for_all for_all, void *state);

/* Calls of the context allocate at most so many bytes of scratch memory. At first: as much as the machine has. */
int $NAME$_set_limit($NAME$_context *context, int64_t bytes);

/* How much scratch memory a call with inputs of these ranks and dims needs; data is not looked at. A call that computes
   sizes itself may need more, and says so. */
int $NAME$_arena_bytes($NAME$_context *context, const tilewright_array *inputs, int64_t *bytes);

/* Scratch memory for calls of the context: it begins at a multiple of 64, and is used until it is replaced or the
   context is closed. Null: the context allocates its own again, and grows it as calls need it. */
int $NAME$_set_arena($NAME$_context *context, void *memory, int64_t bytes);

/* Where the last call left its output of this number. In the context, it is valid until the next call. */
const void *$NAME$_result(const $NAME$_context *context, int64_t number);
"""


_WEIGHTS = """
/* Maps the file of weights, which is checked: no call runs before that. Contexts may share what one has loaded; that
   one is closed last. */
int $NAME$_load_weights($NAME$_context *context, const char *path);
int $NAME$_share_weights($NAME$_context *context, const $NAME$_context *from);
"""


def header_text(parts: Parts) -> str:
    """The header of a library."""
    name, interface = parts.name, parts.programs[0].interface
    functions = _FUNCTIONS + (_WEIGHTS if parts.stamp is not None else "")
    targets = ", ".join(str(program.target) for program in parts.programs)
    guard = f"TILEWRIGHT_{name.upper()}_H"
    types = _TYPES.replace("$INTERFACE$", str(INTERFACE)).replace("$RANK$", str(MOST_RANK))
    return "\n".join(
        [
            f"/* {name}: made by Tilewright {VERSION} for {targets}.",
            *_ports_lines(interface),
            "*/",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            types.replace("$CODES$", _codes_text()),
            functions.replace("$NAME$", name),
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
            "",
        ]
    )


def _codes_text() -> str:
    return "\n".join(
        f"  TILEWRIGHT_{code.name} = {int(code)},{_gap(code.name)}/* {text} */" for code, text in MEANINGS.items()
    )


def _gap(name: str) -> str:
    return " " * (10 - len(name))


def _ports_lines(interface: Interface) -> list[str]:
    lines = []
    for kind, ports in (("input", interface.inputs), ("output", interface.outputs)):
        lines += [f"   {kind} {n}: {_safe(port)}" for n, port in enumerate(ports)]
    return lines


def _safe(port: Port) -> str:
    """A port on one line that does not end a comment."""
    return printable(str(port)).replace("*/", "*\\/").replace("/*", "/\\*")
