"""Functions like exp and sin as basic operations: an expansion for each, with the coefficients that it needs."""
