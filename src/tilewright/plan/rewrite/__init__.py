"""Which rewrites of the graph pay: Winograd, Strassen, layouts, precision. In: sizes and a target. Out: choices that
passes of lower/graph/ apply."""
