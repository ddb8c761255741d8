"""Steps that move the work of a block to another place or nest."""
