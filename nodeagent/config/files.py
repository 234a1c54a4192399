"""Configuration files: our own kind, kube-proxy's, or a ConfigMap that contains either."""

from pathlib import Path

from nodeagent.config.config_problems import ConfigError, ConfigProblem, Origin
from nodeagent.config.document import Located, parse_document, parse_inner_document
from nodeagent.config.keys import KEYS
from nodeagent.config.kube_proxy import read_kube_proxy_configuration
from nodeagent.config.kube_proxy_fields import KUBE_PROXY_API_VERSION, KUBE_PROXY_KIND
from nodeagent.config.layer import Layer, Setting, unknown_key
from nodeagent.config.options import API_VERSION, KIND
from nodeagent.runtime.bounded_file import read_whole

CONFIG_MAP_KEY = "config.conf"  # where kubeadm puts the configuration in ConfigMap kube-system/kube-proxy


def read_file(path: Path) -> Layer:
    """Returns the settings of the file at `path`.
    Raises ConfigError if it cannot be read as a configuration at all; single wrong keys are problems of the layer."""
    try:
        text = read_whole(path).decode()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise ConfigError([ConfigProblem(Origin(str(path)), "", reason)]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([ConfigProblem(Origin(str(path), line), "", "is not UTF-8 text")]) from error
    return read_text(text, str(path))


def read_text(text: str, source: str) -> Layer:
    """Returns the settings of a file with this text and name. Raises ConfigError like `read_file`."""
    document = parse_document(text, source)
    if _type_of(document) == ("v1", "ConfigMap"):
        document = _unwrap(document)
    match _type_of(document):
        case (version, kind) if (version, kind) == (API_VERSION, KIND):
            return _read_own(document)
        case (version, kind) if (version, kind) == (KUBE_PROXY_API_VERSION, KUBE_PROXY_KIND):
            return read_kube_proxy_configuration(document)
        case (version, kind):
            raise _unknown_type(document, version, kind)


def _type_of(document: Located) -> tuple[object, object]:
    entries = document.entries()
    if entries is None:
        raise ConfigError([ConfigProblem(document.origin, "", "must be a mapping with apiVersion and kind")])
    version, kind = entries.get("apiVersion"), entries.get("kind")
    return (version.plain if version else None, kind.plain if kind else None)


def _unknown_type(document: Located, version: object, kind: object) -> ConfigError:
    """Returns the error for a document of another type, at the line of the key that decides."""
    key = "kind" if version in {API_VERSION, KUBE_PROXY_API_VERSION} else "apiVersion"
    type_key = (document.entries() or {}).get(key)
    known = f"{API_VERSION} {KIND}, {KUBE_PROXY_API_VERSION} {KUBE_PROXY_KIND} or a v1 ConfigMap with {CONFIG_MAP_KEY}"
    found = f"this is {version or 'no apiVersion'}, {kind or 'no kind'}"
    return ConfigError(
        [ConfigProblem(type_key.origin if type_key else document.origin, key, f"{found}; it must be {known}")]
    )


def _unwrap(config_map: Located) -> Located:
    data = (config_map.entries() or {}).get("data")
    entries = data.entries() if data else {}
    inner = (entries or {}).get(CONFIG_MAP_KEY)
    if inner is None or not isinstance(inner.value, str):
        origin = data.origin if data else config_map.origin
        raise ConfigError([ConfigProblem(origin, "data", f"has no text under the key {CONFIG_MAP_KEY}")])
    return parse_inner_document(inner)


def _read_own(document: Located) -> Layer:
    layer = Layer()
    names = {key.group for key in KEYS.values()}
    for group, section in (document.entries() or {}).items():
        if group in {"apiVersion", "kind"}:
            continue
        if group not in names:
            layer.problems.append(unknown_key(section.origin, group, [*sorted(names), *KEYS]))
            continue
        entries = section.entries()
        if entries is None:
            layer.problems.append(ConfigProblem(section.origin, group, f"must be a mapping, not {section.plain!r}"))
            continue
        for name, located in entries.items():
            path = f"{group}.{name}"
            if path not in KEYS:
                layer.problems.append(unknown_key(located.origin, path, KEYS))
            elif located.value is not None:
                elements = tuple(item.origin for item in located.value) if isinstance(located.value, list) else ()
                layer.settings[path] = Setting(located.plain, located.origin, path, elements)
    return layer
