"""What programs touch, cost and order: regions, accesses, dependences, cost, lifetimes. Reads programs, never rewrites."""
