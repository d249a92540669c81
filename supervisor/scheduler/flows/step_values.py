"""The values that steps refer to: outputs of earlier steps, parameters and facts of the flow, items. Pure."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from supervisor.config.value_records import Reference, Template
from supervisor.ipc.log_line import stamp
from supervisor.scheduler.runs.run_parameters import NOTHING, ParameterValues

EXIT_CODE = "exit_code"
"""The key that every step has."""


class MissingValue(Exception):
    """A reference has neither a value nor a default; the message names it."""


class StepResult(Struct):
    """What a step, or one of its items, has left for later steps."""

    exit_code: int
    outputs: Mapping[str, Any]
    withheld: frozenset[str] = frozenset()
    """Keys whose values were not stored, because they contained a secret."""


class FlowValues:
    """All values of a flow run; they grow while it goes on."""

    def __init__(self, flow_id: str, attempt: int, scheduled_at: int | None, params: ParameterValues) -> None:
        self.flow_id = flow_id
        self.attempt = attempt
        self.scheduled_at = scheduled_at
        """In milliseconds since the epoch; None if no schedule started the flow."""
        self.params = params
        self.items: dict[str, list[str]] = {}
        """The names of the items of each step that has any, in order."""
        self.results: dict[tuple[str, str | None], StepResult] = {}
        """By step and item; None: the step has no items."""

    def of_step(self, step: str, key: str) -> Any:
        """Return a value of a step; that of a step with items is a list, with None for an item without it.

        Raises:
            KeyError: there is no such value.
        """
        if step not in self.items:
            return self._of_result(self.results[step, None], key)
        values = [self._of_item(step, item, key) for item in self.items[step]]
        if values and all(value is None for value in values):
            raise KeyError(key)
        return values

    def _of_item(self, step: str, item: str, key: str) -> Any:
        try:
            return self._of_result(self.results[step, item], key)
        except KeyError:
            return None

    @staticmethod
    def _of_result(result: StepResult, key: str) -> Any:
        if key in result.withheld:
            raise MissingValue(f"{key}: its value contained a secret, so it was not stored")
        return result.exit_code if key == EXIT_CODE else result.outputs[key]

    def inputs(self, steps: Collection[str]) -> dict[str, Any]:
        """Return the outputs of steps, by step, for ``RINGWARD_INPUTS``; steps that did not run are left out."""
        found: dict[str, Any] = {}
        for step in sorted(steps):
            if step in self.items:
                found[step] = [self._input(step, item) for item in self.items[step]]
            elif (result := self.results.get((step, None))) is not None:
                found[step] = dict(result.outputs)
        return found

    def _input(self, step: str, item: str) -> dict[str, Any]:
        result = self.results.get((step, item))
        return {"item": item, "outputs": dict(result.outputs) if result is not None and result.exit_code == 0 else None}


class Place(Struct, frozen=True):
    """The place of a run in a flow."""

    flow_run_id: str
    step: str
    item: str | None
    values: FlowValues
    each: Mapping[str, str] = {}
    """The values of ``each``, by name."""
    before: frozenset[str] = frozenset()
    """The steps before it."""
    refusal: str | None = None
    """Why it cannot start, if a value is missing or wrong."""


ALONE = Place("", "", None, FlowValues("", 0, None, NOTHING))
"""The place of a run outside a flow: it has no values."""


def resolved(template: Template, place: Place) -> str:
    """Return the text of a value with references.

    Raises:
        MissingValue: a reference without default has no value.
    """
    return "".join(part if isinstance(part, str) else _value(part, place) for part in template)


def _value(reference: Reference, place: Place) -> str:
    try:
        value = raw_value(reference, place)
    except (KeyError, MissingValue) as err:
        if reference.default is not None:
            return reference.default
        detail = f" ({err})" if isinstance(err, MissingValue) else ""
        key = f".{reference.key}" if reference.key else ""
        raise MissingValue(f"${{{reference.of}:{reference.name}{key}}} has no value{detail}") from err
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def raw_value(reference: Reference, place: Place) -> Any:
    """Return the value of a reference: a text, or what the JSON of an output has.

    Raises:
        KeyError: there is no value.
        MissingValue: there was a value that was not stored.
    """
    values = place.values
    if reference.of == "step":
        return values.of_step(reference.name, reference.key)
    if reference.of == "param":
        return {**values.params.shown, **values.params.secret}[reference.name]
    if reference.of == "each":
        return place.each[reference.name]
    of_flow = {"id": values.flow_id or None}
    of_flow["scheduled_at"] = None if values.scheduled_at is None else stamp(values.scheduled_at)
    value = of_flow[reference.name]
    if value is None:
        raise KeyError(reference.name)
    return value


def is_secret(template: Template, place: Place) -> bool:
    """Return whether a value refers to a secret parameter of the flow."""
    return any(
        isinstance(part, Reference) and part.of == "param" and part.name in place.values.params.secret
        for part in template
    )
