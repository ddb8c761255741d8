"""What programs touch, cost and order: regions, accesses, dependences, memory, cost. Nothing is rewritten here."""
