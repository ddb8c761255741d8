"""Steps that put one buffer in place of another."""
