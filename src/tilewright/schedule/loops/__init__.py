"""Steps that rearrange loops, each block as it was."""
