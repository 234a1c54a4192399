"""The configuration flags that `run`, `config show` and `config check` share.

`config_options` declares them from the table in nodeagent.config.flags and gives the command the result as keyword
argument `loaded`; `reloadable_config_options` gives it the function `load`, which reads all layers again at each call.
A configuration that cannot be used ends the command with exit code 2 and one line per problem.
"""

import functools
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from nodeagent.cli.host_checks import refuse_overlaps
from nodeagent.config.config_problems import ConfigError
from nodeagent.config.environment import CONFIG_VARIABLE
from nodeagent.config.flags import DEBUG_VERBOSITY, FLAGS, IGNORED_FLAGS, VERBOSITY, Flag
from nodeagent.config.keys import KEYS, Form, Key
from nodeagent.config.load import LoadedConfig, load_config

Result = TypeVar("Result")

_CONFIG = "config_file"


class ConfigRejected(click.ClickException):
    """The configuration cannot be used; printed without a traceback."""

    exit_code = 2

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))

    def show(self, file: IO[str] | None = None) -> None:
        """Prints one line per problem, to standard error by default."""
        click.echo(self.message, file=file, err=file is None)


def config_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds ``--config`` and every configuration flag to a click command, which gets ``loaded: LoadedConfig``."""

    @functools.wraps(command)
    def with_configuration(*arguments: object, load: Callable[[], LoadedConfig], **parameters: object) -> Result:
        try:
            loaded = load()
        except ConfigError as error:
            raise ConfigRejected(error) from error
        return command(*arguments, loaded=loaded, **parameters)

    return _with_loader(with_configuration, lambda loaded: loaded)


def reloadable_config_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Like `config_options`, but the command gets ``load: Callable[[], LoadedConfig]``.

    `load` raises ConfigError, also if a service range contains an address of this machine.
    """
    return _with_loader(command, refuse_overlaps)


def _with_loader(
    command: Callable[..., Result], accept: Callable[[LoadedConfig], LoadedConfig]
) -> Callable[..., Result]:
    @functools.wraps(command)
    def with_loader(*arguments: object, **parameters: object) -> Result:
        file = parameters.pop(_CONFIG)
        flags = _take_flags(parameters)

        def load() -> LoadedConfig:
            path = Path(str(file)) if file else None
            return accept(load_config(file=path, environment=os.environ, flags=flags, hostname=socket.gethostname()))

        return command(*arguments, load=load, **parameters)

    decorated: Callable[..., Result] = with_loader
    for name in reversed(tuple(IGNORED_FLAGS)):
        decorated = _ignored_option(name)(decorated)
    for flag in reversed(tuple(FLAGS.values())):
        decorated = _option(flag)(decorated)
    decorated = click.option(
        "--cleanup", is_flag=True, hidden=True, expose_value=False, is_eager=True, callback=_point_to_cleanup
    )(decorated)
    return click.option(
        "--config",
        _CONFIG,
        metavar="FILE",
        help=f"Configuration file, of our own kind or kube-proxy's (default: ${CONFIG_VARIABLE}).",
    )(decorated)


def _point_to_cleanup(_context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Rejects kube-proxy's flag --cleanup with a hint at our command."""
    if asked:
        raise click.UsageError(
            "use the command nodeagent cleanup instead of --cleanup (nodeagent cleanup --of kube-proxy for what kube-proxy left)"
        )


def _take_flags(parameters: dict[str, object]) -> Mapping[str, str]:
    """Removes the values of the flags from `parameters` and returns those that were given, by flag name."""
    given: dict[str, str] = {}
    for name in (*FLAGS, *IGNORED_FLAGS):
        match parameters.pop(_parameter(name)):
            case str() as text:
                given[name] = text
            case (_, *_) as texts:
                given[name] = ",".join(str(text) for text in texts)
            case _:
                pass
    return given


def refuse_dashed_values(arguments: Sequence[str]) -> None:
    """Raises UsageError for a value like -1 of an option whose value is optional: click would parse it as an option."""
    given = {name: flag for flag in FLAGS.values() for name in (flag.name, *flag.spellings)}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        flag = given.get(name)
        if equals and value.startswith("-") and flag is not None:
            if flag.name == VERBOSITY:
                raise click.UsageError(f"{name} must be a number from 0 up, not '{value}'")
            if KEYS[flag.path].form is Form.SWITCH:
                raise click.UsageError(f"{name} must be true or false, not '{value}'")


class _DescribedOption(click.Option):
    """The click option of a flag. Its help is looked up when it is shown."""

    def __init__(self, declarations: Sequence[str], *, flag: Flag, **attributes: Any) -> None:
        self._flag = flag
        super().__init__(declarations, **attributes)

    @property
    def help(self) -> str | None:
        return f"{KEYS[self._flag.path].description} [{self._flag.path}]".replace("`", "")

    @help.setter  # noqa: A003 - click's name
    def help(self, text: str | None) -> None:
        """Called by click with None."""


def _option(flag: Flag) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Returns the click option of a flag. The configuration parses its text, so that all errors look alike."""
    key = KEYS[flag.path]
    spellings = (flag.name, *flag.spellings, _parameter(flag.name))
    if flag.name == VERBOSITY:
        help_text = "Log for debugging; a number as kube-proxy takes it: 4 and more is debug, less is info."
        return click.option(*spellings, metavar="N", is_flag=False, flag_value=DEBUG_VERBOSITY, help=help_text)
    described = functools.partial(click.option, *spellings, cls=_DescribedOption, flag=flag)
    complete = _completion_of(key)
    match key.form:
        case Form.SWITCH:
            return described(metavar="true|false", is_flag=False, flag_value="true", shell_complete=complete)
        case Form.LIST:
            return described(metavar="A,B", multiple=True, shell_complete=complete)
        case Form.NUMBER:
            return described(metavar="N")
        case Form.TEXT:
            return described(metavar="TEXT", shell_complete=complete)


def _completion_of(key: Key) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Returns the shell completion of an option: its values, if there are only a few."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return [value for value in values_of(key) if value.startswith(incomplete)]

    return complete


def values_of(key: Key) -> tuple[str, ...]:
    """Returns all values of an option with a fixed set of values, else an empty tuple."""
    if key.form is Form.SWITCH:
        return ("true", "false")
    if isinstance(key.default, StrEnum):
        return tuple(one.value for one in type(key.default))
    return ()


def _ignored_option(name: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    return click.option(name, _parameter(name), is_flag=False, flag_value="true", hidden=True)


def _parameter(flag_name: str) -> str:
    """Returns a Python parameter name that no other option of a command has."""
    return "flag_" + flag_name.lstrip("-").replace("-", "_")
