"""YAML as people write it: read once, with the line of everything, so that a complaint can say where."""
