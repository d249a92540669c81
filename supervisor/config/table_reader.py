"""Checks the values in tables of the configuration, each against its key, and collects all problems."""

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from supervisor.config.files.env_file import parse_variables
from supervisor.config.files.positions import KeyPath
from supervisor.config.files.reading import Source, stamp
from supervisor.config.files.substitute import Substituted, read_small, referring, substitute
from supervisor.config.keys import Key
from supervisor.config.problems import ConfigError, InvalidValue, Problem, nearest, quoted
from supervisor.config.value_records import Reference, Stamp, Template
from supervisor.config.value_types.values import Environment, Secrets, ValueType

_NEVER_SUBSTITUTED = frozenset({"run"})
_MAX_DEPTH = 8
_FILES: Mapping[str, tuple[str, ValueType]] = {
    "env_file": ("env", Environment()),
    "secrets_file": ("secrets", Secrets()),
}
"""Keys that name files, each with the key to which the content is added, and the type of the content."""

Values = dict[str, Any]
"""Checked values by key; keys that are not set are absent."""


class TableReader:
    """Reads tables with the variables of an environment, and remembers problems, warnings and files."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.files: list[str] = []
        """Names of the files in the order of reports."""
        self.read: dict[str, Stamp] = {}
        """Files that values name, with their state."""
        self.variable_files: list[tuple[Source, KeyPath, str]] = []
        """Files of variables, each with the source and the key that name it."""
        self.templates: dict[KeyPath, Template] = {}
        """Values with references that are resolved when a run begins, by key."""

    def finish(self) -> None:
        """Raise the collected problems, sorted by file and line, if there are any."""
        if self.problems:
            order = {name: index for index, name in enumerate(self.files)}
            raise ConfigError(
                sorted(self.problems, key=lambda problem: (order.get(problem.file, 0), problem.line or 0))
            )

    def section(self, source: Source, name: str, keys: Mapping[str, Key]) -> Values:
        """Return the checked values of a table such as ``[daemon]``, which exists once."""
        table = source.data.get(name, {})
        if not isinstance(table, dict):
            self.wrong(source, (name,), "must be a table", f"write [{name}]")
            return {}
        return self.values(source, (name,), table, keys)

    def values(
        self,
        source: Source,
        path: KeyPath,
        table: dict[str, object],
        keys: Mapping[str, Key],
        referable: Collection[str] = (),
    ) -> Values:
        """Return the checked values in a table by key; those in `referable` may have references to steps."""
        values: Values = {}
        for name, raw in table.items():
            key = keys.get(name)
            if key is None:
                self.unknown(source, (*path, name), raw, keys)
                continue
            if key.deprecated is not None:
                message = f"is deprecated since {key.deprecated.since}"
                self.warnings.append(source.problem((*path, name), message, key.deprecated.remedy))
            wrong: list[InvalidValue] = []
            value = raw
            found: dict[KeyPath, Template] = {}
            if name not in _NEVER_SUBSTITUTED:
                replace = partial(
                    substitute,
                    environ=self.environ,
                    directory=source.directory,
                    on_read=self._was_read,
                    referable=name in referable,
                )
                value = self._substituted(raw, replace, (), wrong, found)
            elif name in referable and isinstance(raw, list):
                value = self._substituted(raw, referring, (), wrong, found)
            self.templates |= {(*path, name, *part): template for part, template in found.items()}
            replaced = {part.path for part in wrong}
            try:
                values[name] = key.type.parse(value, source.directory)
            except InvalidValue as err:
                wrong += [part for part in err.parts if part.path not in replaced]
            for part in wrong:
                self.invalid(source, (*path, name), raw, part)
        for name, (key_of_variables, kind_of_value) in _FILES.items():
            for file in values.pop(name, ()):
                try:
                    variables = self._variables(file, kind_of_value)
                except InvalidValue as err:
                    self.wrong(source, (*path, name), f"{file}: {err.message}", err.remedy)
                else:
                    self.variable_files.append((source, (*path, name), file))
                    values[key_of_variables] = variables | values.get(key_of_variables, {})
        return values

    def _variables(self, path: str, kind: ValueType) -> dict[str, str]:
        """Return the variables in the file `path`.

        Raises:
            InvalidValue: the file cannot be read, or a variable is invalid.
        """
        text = self.text(path)
        try:
            variables: dict[str, str] = kind.parse(parse_variables(text), "/")
        except InvalidValue as err:
            first = err.parts[0]
            raise InvalidValue(f"{'.'.join(map(str, first.path))} {first.message}".strip(), first.remedy) from err
        return variables

    def text(self, path: str) -> str:
        """Return the content of the file `path`, which a key names.

        Raises:
            InvalidValue: the file cannot be read, or is not UTF-8.
        """
        try:
            data, status = read_small(path)
            text = data.decode()
        except OSError as err:
            raise InvalidValue(f"cannot be read: {err.strerror or err}") from err
        except UnicodeDecodeError as err:
            raise InvalidValue("is not UTF-8") from err
        self._was_read(path, status)
        return text

    def unknown(
        self,
        source: Source,
        path: KeyPath,
        value: object,  # noqa: ARG002 - for loaders that know other tables
        keys: Mapping[str, Key],
    ) -> None:
        """Report a key that is none of `keys`."""
        self.wrong(source, path, "unknown key", nearest(str(path[-1]), keys))

    def _substituted(
        self,
        value: object,
        replace: Callable[[str], str],
        path: KeyPath,
        wrong: list[InvalidValue],
        found: dict[KeyPath, Template],
    ) -> object:
        """Return `value` with the references in its strings replaced; strings with errors stay.

        Args:
            value: a value in the file.
            replace: returns a string with its references replaced.
            path: the place of the value.
            wrong: collects errors.
            found: collects the templates of strings that refer to steps.
        """
        if isinstance(value, str):
            try:
                text = replace(value)
            except InvalidValue as err:
                err.path = path
                wrong.append(err)
                return value
            if isinstance(text, Substituted) and any(isinstance(part, Reference) for part in text.template):
                found[path] = text.template
            return text
        if isinstance(value, list) and len(path) < _MAX_DEPTH:
            return [self._substituted(item, replace, (*path, n), wrong, found) for n, item in enumerate(value)]
        if isinstance(value, dict) and len(path) < _MAX_DEPTH:
            return {name: self._substituted(item, replace, (*path, name), wrong, found) for name, item in value.items()}
        return value

    def _was_read(self, path: str, status: os.stat_result) -> None:
        self.read[path] = stamp(status)

    def invalid(self, source: Source, path: KeyPath, raw: object, invalid: InvalidValue) -> None:
        """Report an invalid value of the key at `path`, or of a part of it."""
        message = invalid.message
        for part in invalid.path:
            if isinstance(raw, dict):
                raw = raw.get(part)
            elif isinstance(raw, list) and isinstance(part, int):
                raw = raw[part]
        if invalid.reason is not None and not (isinstance(raw, str) and "${" in raw):
            message += f": {invalid.reason}"
        if invalid.show:
            demands = message.startswith("must ") and not message.startswith("must not ")
            message = f"{message}, not {quoted(raw)}" if demands else f"{quoted(raw)} {message}"
        self.wrong(source, (*path, *invalid.path), message, invalid.remedy)

    def wrong(self, source: Source, path: KeyPath, message: str, remedy: str | None = None) -> None:
        """Report a problem with the key at `path`."""
        self.problems.append(source.problem(path, message, remedy))
