"""Objects from a directory of files, in the place of an API server: what a file may hold, and which version of it counts."""
