"""Steps that add up the terms of a sum in other places or another order."""
