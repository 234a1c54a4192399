"""Merges layers: flags win over environment, environment over file, file over defaults; each value keeps its origin."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.config_problems import ConfigError, ConfigProblem, IgnoredField, Origin
from nodeagent.config.contradictions import contradictions, idle_options
from nodeagent.config.environment import CONFIG_VARIABLE, read_environment
from nodeagent.config.files import read_file
from nodeagent.config.flags import read_flags
from nodeagent.config.keys import KEYS, Key, groups
from nodeagent.config.layer import Layer, Setting
from nodeagent.config.options import Group, NodeConfig, Options

_DEFAULT = Origin("default")
_NAME_FOR_CHECKING = "unnamed"  # so that the rest is checked although the name is wrong; never returned


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A validated configuration.

    origins: for every option path (``traffic.masqueradeAll``) the origin of its value: ``default``, ``file
    svc.yaml:12``, ``env NODEAGENT_…``, ``flag --masquerade-all``. ignored: settings of kube-proxy that have no effect
    here; to be logged once at start. warnings: settings that are allowed but probably mistakes, one line each.
    """

    config: AgentConfig
    origins: Mapping[str, str]
    ignored: tuple[IgnoredField, ...] = ()
    warnings: tuple[str, ...] = ()


def load_config(
    *, file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str], hostname: str
) -> LoadedConfig:
    """Returns the configuration that these layers make together.

    file: the value of ``--config``; if None, that of NODEAGENT_CONFIG in `environment`, if set. flags: the text of each
    flag by its name, as in `nodeagent.config.flags`. hostname: the operating system's, for `node.name`.

    Raises ConfigError with all errors of all layers, also in values that another layer overrides.
    """
    named = environment.get(CONFIG_VARIABLE)
    path = file or (Path(named) if named else None)
    problems: list[ConfigProblem] = []
    layers = [_layer_of_file(path, problems), read_environment(environment), read_flags(flags)]
    merged: dict[str, Setting] = {}
    bad: set[str] = set()
    for layer in layers:
        found = dict(_wrong_values(layer))
        own_problems = [*layer.problems, *(problem for group in found.values() for problem in group)]
        problems += sorted(own_problems, key=lambda problem: problem.origin.line)
        bad |= found.keys()
        merged |= {key: setting for key, setting in layer.settings.items() if key not in found}
    if "node.name" not in merged:
        if "node.name" not in bad:
            problems += _host_name_problems(hostname)
        merged["node.name"] = Setting(_NAME_FOR_CHECKING if problems else hostname, _DEFAULT, "node.name")
    options = _options(merged)
    problems += _contradictions(options, merged, bad)
    if problems:
        raise ConfigError(problems)
    origins = {path: merged[path].origin.described if path in merged else _DEFAULT.described for path in KEYS}
    return LoadedConfig(
        config=AgentConfig.model_construct(None, **dict(options)),
        origins=MappingProxyType(origins),
        ignored=tuple(ignored for layer in layers for ignored in layer.ignored),
        warnings=tuple(_warnings(layers, options, merged)),
    )


def _layer_of_file(path: Path | None, problems: list[ConfigProblem]) -> Layer:
    """Returns the file's layer; if the file cannot be read, only records its problems, so that flags are still checked."""
    if path is None:
        return Layer()
    try:
        return read_file(path)
    except ConfigError as error:
        problems += error.problems
        return Layer()


def _wrong_values(layer: Layer) -> Iterator[tuple[str, list[ConfigProblem]]]:
    """Yields the option paths with a wrong value in this layer, each with its problems."""
    for name, group in groups():
        values = {key.name: layer.settings[key.path].value for key in _keys_of(name) if key.path in layer.settings}
        found: dict[str, list[ConfigProblem]] = {}
        for error in _errors(group, values):
            path = f"{name}.{error['loc'][0]}"
            found.setdefault(path, []).append(_problem(layer.settings[path], error))
        yield from found.items()


def _host_name_problems(hostname: str) -> Iterator[ConfigProblem]:
    if not hostname.strip():
        yield ConfigProblem(_DEFAULT, "node.name", "this host has no name; set one")
        return
    setting = Setting(hostname, _DEFAULT, "node.name")
    for error in _errors(NodeConfig, {"name": hostname}):
        yield _problem(setting, error)


def _errors(group: type[Group], values: Mapping[str, object]) -> list[ErrorDetails]:
    try:
        group.model_validate(values)
    except ValidationError as error:
        return [detail for detail in error.errors(include_url=False) if detail["type"] != "missing"]
    return []


def _problem(setting: Setting, error: ErrorDetails) -> ConfigProblem:
    """Returns one error of pydantic as one line; inside a list it has the item's own line."""
    index = error["loc"][1] if len(error["loc"]) > 1 else None
    origin = setting.origin
    if isinstance(index, int) and index < len(setting.elements):
        origin = setting.elements[index]
    reason = error["msg"].removeprefix("Value error, ")
    if error["type"] != "value_error":
        reason = re.sub(
            r"^Input should be (a valid tuple$)?", lambda m: "must be a list" if m[1] else "must be ", reason
        )
        reason = f"{reason}, not {error['input']!r}"
    return ConfigProblem(origin, setting.key, reason)


def _keys_of(group: str) -> Iterator[Key]:
    return (key for key in KEYS.values() if key.group == group)


def _options(merged: Mapping[str, Setting]) -> Options:
    """Returns all options from valid values, before contradictions are checked."""
    parts: dict[str, Group] = {}
    for name, group in groups():
        values = {key.name: merged[key.path].value for key in _keys_of(name) if key.path in merged}
        parts[name] = group.model_validate(values)
    return Options.model_construct(None, **parts)


def _contradictions(options: Options, merged: Mapping[str, Setting], bad: set[str]) -> Iterator[ConfigProblem]:
    """Yields contradictions between valid values; those with a wrong value would only confuse."""
    for key, others, reason in contradictions(options):
        if not bad.intersection((key, *others)):
            setting = next((merged[path] for path in (key, *others) if path in merged), None)
            origin = setting.origin if setting else _DEFAULT
            yield ConfigProblem(origin, setting.key if setting else key, reason)


def _warnings(layers: list[Layer], options: Options, merged: Mapping[str, Setting]) -> Iterator[str]:
    for layer in layers:
        yield from layer.warnings
    for key, reason in idle_options(options):
        origin = merged[key].origin if key in merged else _DEFAULT
        yield f"{origin}: {key}: {reason}"
