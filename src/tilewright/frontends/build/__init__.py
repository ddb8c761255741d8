"""The common ground of front ends: values and sizes known while a graph is built, and what handlers build with."""
