"""Images become one file for the system's own loader and linker."""
