"""Secret (core/v1): data that users with the role of a reader may not read."""

import base64
from collections.abc import Iterator
from itertools import islice

from nodeagent.kinds.description.documents import Document, Json, decode
from nodeagent.kinds.description.object_rules import validate_data, validate_data_update
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import MOST_ERRORS, FieldError, invalid, required

_JSON = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_NEEDED = {
    **_JSON,
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}

SHAPES = read_shapes(r"""
Secret = io.k8s.api.core.v1 : Secret holds secret data of a certain type.
  metadata    ObjectMeta #1 : Standard object's metadata.
  immutable   *bool #5 : Immutable, if set to true, ensures that data stored in the Secret cannot be updated.
  data        {bytes} #2 : Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'.
  stringData  {string} #4 : stringData allows specifying non-binary secret data in string form.
  type        string #3 : Used to facilitate programmatic handling of secret data.
""")


def default_secret(secret: Document) -> None:
    """Sets the type Opaque and moves stringData into data."""
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = dict(sorted({**(secret.get("data") or {}), **encoded}.items()))


def validate_secret(secret: Document) -> Iterator[FieldError]:
    """Yields the errors of keys and size, and of the data that the type requires."""
    data, kind = secret.get("data") or {}, secret.get("type", "")
    yield from validate_data(secret)
    missing = [key for key in _NEEDED.get(kind, ()) if key not in data]
    yield from [required(f"data[{key}]") for key in missing]
    for key in _JSON.get(kind, ()):
        if key in data and not _is_json(data[key]):
            yield invalid(f"data[{key}]", "<secret contents redacted>", "invalid JSON")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield from [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not (secret["metadata"].get("annotations") or {}).get(name):
            yield required(f"metadata.annotations[{name}]")


def validate_secret_update(secret: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: the type is immutable, and so is the data if the Secret says so."""
    first = list(islice(validate_data_update(secret, old), MOST_ERRORS + 1))
    yield from first
    yield from (error for error in validate_secret(secret) if error not in first)


def _is_json(text: str) -> bool:
    try:
        return isinstance(decode(base64.b64decode(text)), dict | None)
    except (ValueError, RecursionError):
        return False


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    return [name, document.get("type", ""), len(document.get("data") or {}), old]


PRINTER = Printer((Column("Type", described_by="type"), Column("Data", described_by="data"), AGE), _cells)


ROWS = (
    Resource(
        plural="secrets",
        singular="secret",
        kind="Secret",
        struct=SHAPES["Secret"],
        printer=PRINTER,
        default=default_secret,
        validate=validate_secret,
        validate_update=validate_secret_update,
        fields=("type",),
        storage_hash="S6u1pOWzb84=",
        confidential=True,
    ),
)
