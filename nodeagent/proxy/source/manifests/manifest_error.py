"""The error that ends an agent whose directory of manifests cannot be read."""


class ManifestError(Exception):
    """The directory cannot be read at the start. One line for users."""
