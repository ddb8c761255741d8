"""What every front end stands on: values and sizes known while a graph is built, and what handlers build with."""
