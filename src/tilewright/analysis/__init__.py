"""What programs touch, cost and order: regions, accesses, dependences, cost, lifetimes. Nothing is rewritten here."""
