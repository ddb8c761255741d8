"""Programs as shared libraries with a C header: files that run without Python."""
