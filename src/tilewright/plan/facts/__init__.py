"""Facts of a kernel: contractions and windows, recognised in loops functions. In: a function. Out: records of it."""
