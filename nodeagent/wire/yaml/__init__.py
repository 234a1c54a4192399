"""YAML as people write it: read once, with the line of every value, so that an error message can name it."""
