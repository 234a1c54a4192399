"""What people write into files, read the same everywhere: up to a bound, and YAML with the line of everything.

It knows neither manifests nor options. Errors are OSError, and values that say line and reason.
"""
