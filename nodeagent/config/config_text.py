"""A loaded configuration as text, as `nodeagent config show` prints it."""

import json
from collections.abc import Iterable, Iterator

import yaml

from nodeagent.config.keys import KEYS, groups, plain_option
from nodeagent.config.load import LoadedConfig
from nodeagent.config.options import API_VERSION, KIND


def render_yaml(loaded: LoadedConfig, remarks: Iterable[str] = ()) -> str:
    """Returns the configuration as a file for ``--config``, each line with the origin of its value.

    remarks: comments for the end, after the notes.
    """
    lines = [(f"apiVersion: {API_VERSION}", ""), (f"kind: {KIND}", "")]
    for group, _ in groups():
        lines.append((f"{group}:", ""))
        lines += [
            (f"  {key.name}: {_inline(plain_option(key, key.value_in(loaded.config)))}", loaded.origins[key.path])
            for key in KEYS.values()
            if key.group == group
        ]
    width = max(len(text) for text, origin in lines if origin)
    body = [f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines]
    return "\n".join([*body, *(f"# {note}" for note in (*notes(loaded), *remarks))]) + "\n"


def render_json(loaded: LoadedConfig, remarks: Iterable[str] = ()) -> str:
    """Returns ``config`` (a configuration file), ``origins`` by option path, ``ignored``, ``warnings`` and ``remarks``."""
    config: dict[str, object] = {"apiVersion": API_VERSION, "kind": KIND}
    for group, _ in groups():
        config[group] = {
            key.name: plain_option(key, key.value_in(loaded.config)) for key in KEYS.values() if key.group == group
        }
    ignored = [{"key": field.key, "reason": field.reason, "place": str(field.origin)} for field in loaded.ignored]
    whole = {
        "config": config,
        "origins": dict(loaded.origins),
        "ignored": ignored,
        "warnings": list(loaded.warnings),
        "remarks": list(remarks),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def notes(loaded: LoadedConfig) -> Iterator[str]:
    """Yields the notes about a configuration: the ignored fields, then the warnings."""
    yield from map(str, loaded.ignored)
    yield from (f"warning: {warning}" for warning in loaded.warnings)


def _inline(value: object) -> str:
    """Returns a scalar or list on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
