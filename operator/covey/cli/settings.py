"""Settings of the processes: a YAML file, overridden by the environment, overridden by flags.

Whatever is wrong is said with the name under which it was given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from pydantic import ValidationError

from covey.kube.settings import ProcessSettings, Setting, SettingError, settings_of
from covey.manifests.documents import read_plain
from covey.manifests.errors import InputError, ManifestPath, ManifestProblem
from covey.manifests.strict import in_words
from covey.observability.logging import configure, get_logger

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=ProcessSettings)

#: Flags that stand for a value of a setting, most of them those of ``kopf run``: names, setting, value, help.
_SWITCHES: Final = (
    (("--all-namespaces", "-A"), "namespaces", "", "All namespaces, whatever the file or a variable say."),
    (("--verbose", "-v"), "log_level", "debug", "The same as --log-level=debug."),
    (("--quiet", "-q"), "log_level", "warning", "The same as --log-level=warning."),
    (("--no-browser",), "open", "false", "The same as --open=false."),
)
_SHORT: Final = {"namespaces": "-n"}


def options(model: type[ProcessSettings]) -> Callable[[F], F]:
    """Give a command the flags of a process; it takes them as ``flags`` for ``load_settings``."""

    def decorate(command: F) -> F:
        file = f"Settings in YAML; {model.prefix}… variables and flags override it."
        command = click.option("--config", metavar="FILE", help=file)(command)
        for names, field, _, text in reversed(_SWITCHES):
            if field in model.model_fields:
                command = click.option(*names, is_flag=True, help=text)(command)
        for setting in reversed([*settings_of(model)]):
            command = _option(setting)(command)
        return command

    return decorate


def _option(setting: Setting) -> Callable[[F], F]:
    names = [setting.flag, setting.field, *filter(None, [_SHORT.get(setting.field)])]
    more: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if setting.is_switch else {}
    text = setting.text + (" Repeatable, or with commas." if setting.is_list else "")
    if setting.default:
        text += f" Default: {setting.default}."
    return click.option(*names, metavar=setting.metavar, multiple=setting.is_list, help=text, **more)


def load_settings(
    model: type[S],
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    *,
    check: Callable[[S], None] | None = None,
) -> S:
    """Read the settings in force.

    Args:
        model: of the process.
        flags: what the command line gives: by field None or empty where a flag was not given, switches, ``config``.
        environment: variables; those that are empty, or of no setting, are passed over.
        check: what else must hold; raises ``SettingError``.

    Raises:
        InputError: with a line for every bad setting, under the name by which it was given; or two flags contradict.
    """
    settings = {setting.key: setting for setting in settings_of(model)}
    given = _resolve_switches(flags, {setting.field: setting.flag for setting in settings.values()})
    file = flags.get("config")
    values: dict[str, Any] = {}
    sources: dict[str, ManifestPath | str] = {}
    for name, value in (read_plain(file) if file else {}).items():
        values[str(name)], sources[str(name)] = value, ManifestPath(file or "", field=str(name))
    for key, setting in settings.items():
        if environment.get(setting.variable):
            values[key], sources[key] = environment[setting.variable], setting.variable
        if given.get(setting.field) not in (None, ()):
            values[key], sources[key] = given[setting.field], setting.flag
    try:
        loaded = model.model_validate(values)
        if check is not None:
            check(loaded)
    except ValidationError as errors:
        for error in errors.errors():
            if isinstance(contradiction := error.get("ctx", {}).get("error"), SettingError):
                raise _name_source(contradiction, settings, sources) from None
        raise InputError.of(
            [
                # A key of the file may have dots itself.
                ManifestProblem(
                    sources.get(path) or sources[re.split(r"[.\[]", path)[0]], *_write(what, remedy, settings)
                )
                for path, what, remedy in in_words(errors)
            ]
        ) from None
    except SettingError as error:
        raise _name_source(error, settings, sources) from None
    return loaded


def announce(process: str, settings: ProcessSettings) -> None:
    """Set up the logs and say once what is in force."""
    configure(settings.log_level, settings.log_format)
    get_logger("covey.cli").info("effective settings", process=process, **settings.model_dump(mode="json"))


def _resolve_switches(flags: Mapping[str, Any], givers: dict[str, str]) -> dict[str, Any]:
    """The flags by field, without switches; ``givers``: the flag that gives each field."""
    given = dict(flags)
    for (flag, *_), field, value, _ in _SWITCHES:
        if not given.pop(flag[2:].replace("-", "_"), False):
            continue
        if given.get(field) not in (None, ()):
            raise InputError(flag, f"it contradicts {givers[field]}", "give one of them")
        given[field], givers[field] = value, flag
    return given


def _name_source(
    error: SettingError, settings: Mapping[str, Setting], sources: Mapping[str, ManifestPath | str]
) -> InputError:
    wrong = next(setting for setting in settings.values() if setting.field == error.field)
    return InputError(sources.get(wrong.key, wrong.flag), error.what, error.remedy)


def _write(what: str, remedy: str, known: Mapping[str, Setting]) -> tuple[str, str]:
    if what.startswith("extra inputs"):
        return "there is no such setting", f"use one of {', '.join(sorted(known))}"
    return what.removeprefix("value error, "), remedy
