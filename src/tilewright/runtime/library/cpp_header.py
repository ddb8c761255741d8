"""The C++ header of a library: its C header, and thin types over it, for C++17 and later."""

from __future__ import annotations

TYPES = """\
#ifndef TILEWRIGHT_CPP
#define TILEWRIGHT_CPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tilewright {

// What a function of a library answered.
struct error : std::runtime_error {
  int code;
  error(int code, const char *text) : std::runtime_error(text), code(code) {}
};

// Elements in row-major order, and their shape.
template <class T>
struct tensor {
  std::vector<int64_t> shape;
  std::vector<T> data;

  tensor() = default;
  explicit tensor(std::vector<int64_t> dims) : shape(std::move(dims)) { data.resize(size()); }

  std::size_t size() const {
    std::size_t count = 1;
    for (int64_t n : shape) count *= static_cast<std::size_t>(n);
    return count;
  }

  // The record of this memory, valid as long as the tensor is not changed.
  tilewright_array array() const {
    tilewright_array found{};
    if (shape.size() > sizeof found.dims / sizeof *found.dims) throw error(TILEWRIGHT_SHAPE, "too many dimensions");
    found.data = const_cast<T *>(data.data());
    found.bytes = static_cast<int64_t>(data.size() * sizeof(T));
    found.rank = static_cast<int64_t>(shape.size());
    for (std::size_t n = 0; n < shape.size(); n++) found.dims[n] = shape[n];
    return found;
  }
};

// A context of a library, given as a class of its functions. One thread uses it at a time.
template <class Library>
class model {
 public:
  model() {
    typename Library::context *made = nullptr;
    int code = Library::open(&made);
    context_.reset(made);
    check(code);
  }

  void set_threads(int64_t threads) { check(Library::set_threads(context_.get(), threads)); }

  typename Library::context *get() { return context_.get(); }

  // The result of a program with one output, whose size the inputs decide.
  template <class Out, class... In>
  tensor<Out> run(const tensor<In> &...inputs) {
    tilewright_array given[] = {inputs.array()..., {}}, made{};
    check(Library::sizes(context_.get(), given, &made));
    tensor<Out> result(std::vector<int64_t>(made.dims, made.dims + made.rank));
    if (made.bytes != static_cast<int64_t>(result.size() * sizeof(Out)))
      throw error(TILEWRIGHT_SHAPE, "the output has elements of another size");
    made.data = result.data.data();
    check(Library::run(context_.get(), given, &made));
    return result;
  }

  void check(int code) const {
    if (code) throw error(code, Library::error(context_.get()));
  }

 private:
  struct close {
    void operator()(typename Library::context *context) const { Library::close(context); }
  };
  std::unique_ptr<typename Library::context, close> context_;
};

}  // namespace tilewright

#endif
"""
"""What all libraries share: errors, tensors, and models over a class of a library's functions."""

_MODEL = """
struct $NAME$_library {
  using context = $NAME$_context;
  static int open(context **c) { return $NAME$_open(c); }
  static void close(context *c) { $NAME$_close(c); }
  static const char *error(const context *c) { return $NAME$_error(c); }
  static int set_threads(context *c, int64_t n) { return $NAME$_set_threads(c, n); }
  static int sizes(context *c, const tilewright_array *in, tilewright_array *out) { return $NAME$_sizes(c, in, out); }
  static int run(context *c, const tilewright_array *in, tilewright_array *out) { return $NAME$_run(c, in, out); }
};

/* A context of the model, which closes itself. One thread uses it at a time. */
using $NAME$_model = tilewright::model<$NAME$_library>;
"""


def cpp_text(name: str, c_header: str) -> str:
    """The C++ header of a library called `name`, behind its C header."""
    return "\n".join(
        [
            c_header,
            f"#ifndef TILEWRIGHT_{name.upper()}_CPP",
            f"#define TILEWRIGHT_{name.upper()}_CPP",
            "",
            TYPES,
            _MODEL.replace("$NAME$", name),
            "#endif",
            "",
        ]
    )
