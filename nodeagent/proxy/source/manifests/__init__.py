"""Objects from a directory of files, instead of an API server: what a file may contain, and which version of it counts."""
