"""Register tiles and the steps around them that all templates share. In: a schedule and a tile. Out: more steps."""
