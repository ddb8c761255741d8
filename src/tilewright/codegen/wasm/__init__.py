"""Object files of WebAssembly become one module."""
