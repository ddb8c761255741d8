"""Attentions: two products with a softmax between them, in one kernel."""
