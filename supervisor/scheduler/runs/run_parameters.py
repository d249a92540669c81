"""Parameters of a run: validate values against the task, and pass them to the command. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from supervisor.config.model import Task
from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import Param
from supervisor.config.value_types.param_values import MAX_BYTES, normal

_SHOWN_NAMES = 10


@dataclass(frozen=True)
class ParameterValues:
    """Normalised values by parameter name."""

    shown: Mapping[str, str] = field(default_factory=dict)
    """Values that are not secret, defaults included."""
    secret: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that the requester gave for secret parameters. Defaults are not included."""
    lost: frozenset[str] = frozenset()
    """Names of secret parameters whose values are no longer kept."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters that have values here."""
        return frozenset((*self.shown, *self.secret))

    @property
    def record(self) -> dict[str, str | None] | None:
        """The values for the store; the value of a secret is None."""
        return {**self.shown, **dict.fromkeys((*self.secret, *self.lost))} or None


NOTHING = ParameterValues()


class InvalidParameter(NamedTuple):
    """An invalid parameter, and the reason without its value."""

    name: str
    message: str


class InvalidParameters(Exception):
    """The values do not match the parameters of the task; `wrong` lists each reason, without secret values."""

    def __init__(self, wrong: Sequence[InvalidParameter]) -> None:
        self.wrong = wrong
        super().__init__("; ".join(f"{param.name} {param.message}" for param in wrong))


def stored_values(record: Mapping[str, str | None] | None, secret: Mapping[str, str]) -> ParameterValues:
    """Return the parameter values of a stored run.

    Args:
        record: the values in the store.
        secret: the secret values that are still kept.
    """
    if not record:
        return NOTHING
    shown = {name: value for name, value in record.items() if value is not None}
    hidden = record.keys() - shown.keys()
    return ParameterValues(
        shown, {name: secret[name] for name in hidden if name in secret}, frozenset(hidden - secret.keys())
    )


def complete_values(task: Task, values: Mapping[str, str]) -> ParameterValues:
    """Return the values for a new run: the given values, and defaults for the rest.

    Raises:
        InvalidParameters: a value is unknown, missing or invalid, or all values together are too large.
    """
    if not task.params and not values:
        return NOTHING
    params = {param.name: param for param in task.params}
    shown: dict[str, str] = {}
    secret: dict[str, str] = {}
    wrong = [InvalidParameter(name, _unknown(params)) for name in values if name not in params]
    for name, param in params.items():
        try:
            value = normal(param, values[name]) if name in values else _default(param)
        except InvalidValue as err:
            wrong.append(InvalidParameter(name, f"{err.message}; {err.remedy}" if err.remedy else err.message))
            continue
        if value is not None and not param.secret:
            shown[name] = value
        elif value is not None and name in values:
            secret[name] = value
    if not wrong and sum(len(value.encode()) for value in (*shown.values(), *secret.values())) > MAX_BYTES:
        wrong = [
            InvalidParameter(name, f"is too long: all values together may have {MAX_BYTES} bytes") for name in values
        ]
    if wrong:
        raise InvalidParameters(wrong)
    return ParameterValues(shown, secret)


def default_record(task: Task) -> dict[str, str | None] | None:
    """Return the record of a run for which nobody gave a value."""
    defaults = {param.name: param.default for param in task.params if param.default is not None and not param.secret}
    return {**defaults} or None


def accept_again(task: Task, given: ParameterValues) -> ParameterValues:
    """Return the values of an earlier run for a new run of the same task, whose definition may have changed.

    Raises:
        InvalidParameters: the values are no longer valid, or include secrets that are no longer kept.
    """
    lost = [InvalidParameter(name, "is secret, and its value is no longer kept") for name in sorted(given.lost)]
    try:
        again = complete_values(task, {**given.shown, **given.secret})
    except InvalidParameters as err:
        missing = {param.name for param in lost}
        raise InvalidParameters([*lost, *(param for param in err.wrong if param.name not in missing)]) from err
    if lost:
        raise InvalidParameters(lost)
    return again


class CommandParameters(NamedTuple):
    """Arguments and environment variables that pass the values to the command."""

    arguments: list[str]
    env: dict[str, str]
    secrets: list[str]
    """Names of variables whose values are masked in the output."""


def command_parameters(task: Task, given: ParameterValues) -> CommandParameters:
    """Return the arguments and variables of the command for `given`; the definition may be newer than the run.

    Raises:
        InvalidParameters: the values do not match this definition.
    """
    if not task.params and given is NOTHING:
        return CommandParameters([], {}, [])
    again = accept_again(task, given)
    values = {**{param.name: param.default for param in task.params}, **again.shown, **again.secret}
    there = {name: value for name, value in values.items() if value is not None}
    return CommandParameters(
        arguments=[*_positional(task.params, there), *_options(task.params, there)],
        env={param.name: there[param.name] for param in task.params if param.kind == "env" and param.name in there},
        secrets=[param.name for param in task.params if param.secret and param.name in there],
    )


def _positional(params: Sequence[Param], values: Mapping[str, str]) -> list[str]:
    """Return the positional arguments.

    A missing value becomes an empty argument if another one follows, because later arguments must keep their positions.
    """
    arguments = [values.get(param.name) for param in params if param.kind == "arg"]
    while arguments and arguments[-1] is None:
        arguments.pop()
    return [argument or "" for argument in arguments]


def _options(params: Sequence[Param], values: Mapping[str, str]) -> list[str]:
    options = []
    for param in params:
        value = values.get(param.name)
        if param.kind == "option" and value is not None:
            options.append(f"--{param.name}={value}")
        elif param.kind == "flag" and value == "true":
            options.append(f"--{param.name}")
    return options


def _default(param: Param) -> str | None:
    if param.required and param.default is None:
        raise InvalidValue("is required")
    return param.default


def _unknown(names: Collection[str]) -> str:
    if not names:
        return "is not a parameter of this task, which has none"
    few = len(names) <= _SHOWN_NAMES
    return f"is not a parameter of this task; it has {', '.join(names) if few else f'{len(names)} others'}"
