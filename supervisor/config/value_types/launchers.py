"""Launchers: the types of their values, the resolution of a table, and which tasks and services can have one.

Each word of ``start``, ``stop`` and ``probe`` becomes one argument, whatever replaces its placeholders. Exceptions:

* ``{command}``, ``{client}`` and ``{options}`` are whole words and become several arguments;
* a word with ``{env_name}`` is repeated for each variable of the job, with ``{env_value}`` except for secrets;
* a word with a placeholder that has no value is omitted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from supervisor.config.problems import Faults, InvalidValue, nearest, quoted
from supervisor.config.value_records import Launcher
from supervisor.config.value_types.presets import PRESETS, Preset
from supervisor.config.value_types.values import MAX_ARGUMENT_BYTES, Text, TextOf, parse_parts

LOCAL = "local"
MAX_LAUNCHERS = 100
_MAX_WORDS = 1000
PLACEHOLDER = re.compile(r"(?<![{$])\{([a-z_]+)\}(?!\})")
"""A placeholder. Doubled braces (Go templates) and braces after a dollar sign (shell) do not match."""

OF_THE_RUN: Final = ("run_id", "run_id_lower", "task", "instance", "attempt", "user", "group", "stop_signal", "grace_s")
OF_THE_COMMAND: Final = ("command", "run", "shell", "working_dir", "env_name", "env_value", "env_json")
"""Placeholders that only ``start`` may contain."""
_SEVERAL: Final = ("command", "client", "options")
_SETTINGS: Final = ("client", "options", "host", "image")
_COMMANDS: Final = ("start", "stop", "probe")
_POSITIONAL = re.compile(r"[^\s{}-][^\s{}]*")


class ArgumentList(Struct, frozen=True):
    """Arguments for a client, as a list."""

    program: bool = False
    """Whether the first argument is the program."""

    def parse(self, value: object, directory: str) -> tuple[str, ...]:
        """Return the arguments."""
        if not isinstance(value, list):
            raise InvalidValue(f"must be {self.expected}", "write each argument as a separate item")
        if self.program and (not value or value[0] == ""):
            raise InvalidValue("must name a program first", show=False)
        if len(value) > _MAX_WORDS:
            raise InvalidValue(f"must have at most {_MAX_WORDS} arguments, it has {len(value)}", show=False)
        argument = Text(limit=MAX_ARGUMENT_BYTES)
        return tuple(parse_parts(enumerate(value), lambda _index, word: argument.parse(word, directory)).values())

    @property
    def expected(self) -> str:
        """Describe the accepted values."""
        return "a list of arguments, the program first" if self.program else "a list of arguments"


def word_such_as(example: str) -> TextOf:
    """Return the type of the name of a host or an image, which is one word."""
    return TextOf(f'one word such as "{example}"', _POSITIONAL)


def launcher(name: str, values: Mapping[str, Any]) -> Launcher:
    """Return the launcher that the checked values of a table describe.

    Raises:
        InvalidParts: the values contradict each other, or do not say how to start a job.
    """
    preset = PRESETS[values["preset"]] if "preset" in values else None
    faults = Faults(_unfit(preset, values))
    settings = {key: values.get(key) for key in _SETTINGS}
    if preset is not None:
        settings["client"] = values.get("client", preset.client)
    settings["options"] = values.get("options", ())
    words: dict[str, tuple[str, ...]] = {}
    for command in _COMMANDS:
        own = values.get(command)
        template = own if own is not None else getattr(preset, command, ())
        placeholders = (*OF_THE_RUN, *(OF_THE_COMMAND if command == "start" else ()))
        words[command], invalid_words = _substituted(template, settings, placeholders)
        for index, invalid in invalid_words if own is not None else ():
            invalid.path = (command, index)
            faults.errors.append(invalid)
    for key, placeholders in (("client", OF_THE_RUN), ("options", (*OF_THE_RUN, *OF_THE_COMMAND))):
        for index, invalid in _substituted(values.get(key, ()), {}, placeholders)[1]:
            invalid.path = (key, index)
            faults.errors.append(invalid)
    if not words["start"] and preset is None:
        faults.add("has neither preset nor start", 'add preset = "…" or start = […]')
    elif "start" in values and not _has_command(words["start"]):
        faults.add("has no placeholder for the command", 'add "{command}"', path=("start",))
    faults.check()
    # The user's own words may show secrets, which is the user's decision.
    ours = preset is not None and "start" not in values
    return Launcher(
        name=name,
        **words,
        feed=preset.feed if preset is not None and ours else "nothing",
        image=values.get("image"),
        carries_secrets=preset.carries_secrets if preset is not None and ours else True,
        expands=preset is not None and ours and preset.expands,
        own_failures=dict(preset.own_failures) if preset is not None and ours else {},
    )


def _unfit(preset: Preset | None, values: Mapping[str, object]) -> Iterator[InvalidValue]:
    """Yield errors about keys that do not belong to the preset, and about missing keys."""
    if preset is None:
        return
    name = values["preset"]
    takes = preset.takes | ({"client"} if preset.client else set())
    for key in _SETTINGS:
        if key in values and key not in takes:
            yield InvalidValue(
                f"not a key of the preset {name}", "write start, stop and probe", show=False, path=(key,)
            )
    for key in preset.needs.difference(values):
        yield InvalidValue(f"the preset {name} needs {key}", f'add {key} = "…"', show=False)


def _substituted(
    template: tuple[str, ...], settings: Mapping[str, Any], placeholders: tuple[str, ...]
) -> tuple[tuple[str, ...], list[tuple[int, InvalidValue]]]:
    """Return the words with those placeholders replaced that have the same value for all runs, and errors by index."""
    words: list[str] = []
    wrong: list[tuple[int, InvalidValue]] = []
    for index, word in enumerate(template):
        for name in PLACEHOLDER.findall(word):
            if name in settings and settings[name] is None:
                wrong.append((index, InvalidValue(f"needs the key {name}", f"add {name} = …", show=False)))
            elif name not in (*placeholders, *settings):
                remedy = (
                    nearest(name, (*placeholders, *settings)) or f"there are {', '.join((*placeholders, *settings))}"
                )
                wrong.append((index, InvalidValue(f"unknown placeholder {{{name}}}", remedy, show=False)))
            elif name in _SEVERAL and word != f"{{{name}}}":
                wrong.append(
                    (
                        index,
                        InvalidValue(
                            f"contains {{{name}}}, which stands for several arguments",
                            "write it as a separate argument",
                        ),
                    )
                )
        several = word[1:-1] if word in ("{client}", "{options}") else None
        if several is not None:
            words += settings[several] or ()
        else:
            words.append(PLACEHOLDER.sub(lambda match: _setting(match, settings), word))
    return tuple(words), wrong


def _setting(match: re.Match[str], settings: Mapping[str, object]) -> str:
    value = settings.get(match[1])
    return value if isinstance(value, str) else match[0]


def _has_command(words: tuple[str, ...]) -> bool:
    return any(name in ("command", "run") for word in words for name in PLACEHOLDER.findall(word))


def unknown_launcher(name: str, launchers: Mapping[str, object]) -> InvalidValue:
    """Return the error for the name of a launcher that does not exist."""
    return InvalidValue(
        f"no launcher named {quoted(name)}", nearest(name, (*launchers, LOCAL)) or f"add [launchers.{name}]"
    )


def unlaunchable(used_launcher: Launcher, values: Mapping[str, Any]) -> Iterator[InvalidValue]:
    """Yield the reasons why a task or service with these checked values cannot use a launcher."""
    secret = [*values.get("secrets", ()), *(param.name for param in values.get("params", ()) if param.secret)]
    if secret and not used_launcher.carries_secrets:
        message = f"{used_launcher.name} would expose secrets such as {secret[0]} on the way to the job"
        yield InvalidValue(message, "let the job read them from the engine's own store of secrets", show=False)
    if values.get("on_change"):
        yield InvalidValue(
            "on_change names files of this host, which the job cannot read", "remove on_change", show=False
        )
    for key in ("ready", "live"):
        probe = values.get(key)
        if probe is not None and probe.kind == "notify":
            yield InvalidValue(f"{key} = notify cannot reach this host from the job", "use another kind", show=False)
