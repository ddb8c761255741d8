"""The machinery every level of the compiler is built on: nodes, walks, rewriting, passes."""
