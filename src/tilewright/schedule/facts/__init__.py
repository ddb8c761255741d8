"""What a step asks of a program before it changes anything."""
