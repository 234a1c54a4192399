"""What ends an agent whose directory of manifests cannot be read."""


class ManifestError(Exception):
    """The directory cannot be read at start. One line for a person."""
