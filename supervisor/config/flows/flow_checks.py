"""Checks of flows: their graphs, the tasks of their steps, and the references between steps.

All yield :data:`supervisor.config.cross_checks.Found`: the name of the flow, the path below its table, and the error.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from supervisor.config.cross_checks import Found
from supervisor.config.files.positions import KeyPath
from supervisor.config.flows.flow_keys import MAX_STEPS
from supervisor.config.model import Task
from supervisor.config.problems import InvalidValue, nearest, quoted
from supervisor.config.value_records import Param, Reference, Step, Template
from supervisor.config.value_types.durations import format_duration
from supervisor.config.value_types.param_values import normal
from supervisor.config.value_types.params import is_reserved
from supervisor.schedule.flow_graph import circle, reachable

EXIT_CODE = "exit_code"


class _FlowNode(Struct):
    """A flow as part of the graph of flows that contain each other."""

    name: str
    after: Sequence[str]
    """The flows of its steps."""
    when: str = "end"


def check_flows(tasks: Mapping[str, Task], services: Collection[str], unit_names: Collection[str]) -> Iterator[Found]:
    """Yield the errors in all flows.

    Args:
        tasks: tasks, flows and steps with valid values.
        services: names of services.
        unit_names: names of all units, including those with invalid values.
    """
    flows = [task for task in tasks.values() if task.steps]
    for flow in flows:
        for key_path, invalid in _errors(flow, tasks, services, unit_names):
            yield flow.name, key_path, invalid
    inside = [_FlowNode(flow.name, [step.unit for step in flow.steps]) for flow in flows]
    if names := circle(inside)[::-1]:
        steps = tasks[names[-1]].steps
        step = next(step for step in steps if step.unit == names[0])
        message = f"the flow contains itself: {' -> '.join((*names, names[0]))}"
        yield names[-1], ("steps", step.name, "task"), InvalidValue(message)


def _errors(
    flow: Task, tasks: Mapping[str, Task], services: Collection[str], unit_names: Collection[str]
) -> Iterator[tuple[KeyPath, InvalidValue]]:
    names = {step.name for step in flow.steps}
    if len(names) > MAX_STEPS:
        yield ("steps",), InvalidValue(f"has {len(names)} steps, more than {MAX_STEPS}", "divide it into several flows")
        return
    for step in flow.steps:
        path = ("steps", step.name)
        for name in step.after:
            if name not in names:
                yield (*path, "after"), InvalidValue(f"no step named {quoted(name)}", nearest(name, names))
        if step.unit != f"{flow.name}:{step.name}":
            yield from _named_task(path, step, tasks, services, unit_names)
        yield from _references(path, flow, step, tasks)
    if steps := circle(flow.steps):
        message = f"dependency cycle: {' -> '.join((*steps, steps[0]))}"
        yield ("steps", steps[0], "after"), InvalidValue(message, "remove one of them")


def _named_task(
    path: KeyPath, step: Step, tasks: Mapping[str, Task], services: Collection[str], unit_names: Collection[str]
) -> Iterator[tuple[KeyPath, InvalidValue]]:
    """Yield the errors in ``task`` and ``params`` of a step."""
    task = tasks.get(step.unit)
    if step.unit not in unit_names:
        yield (*path, "task"), InvalidValue(f"no task or flow named {quoted(step.unit)}", nearest(step.unit, tasks))
    elif step.unit in services:
        yield (*path, "task"), InvalidValue(f"{quoted(step.unit)} is a service", "a step runs a task")
    elif task is not None and task.flow is not None:
        message = f"{quoted(step.unit)} is a step of the flow {quoted(task.flow)}"
        yield (*path, "task"), InvalidValue(message, "define a task, which both flows can name")
    elif task is not None:
        declared = {param.name: param for param in task.params}
        for name, value in step.params.items():
            for invalid in _param(task, declared, name, value):
                yield (*path, "params", name), invalid
        for param in declared.values():
            if param.required and param.default is None and param.name not in step.params:
                message = f"lacks the parameter {quoted(param.name)}, which {quoted(task.name)} requires"
                yield path, InvalidValue(message, f'add params = {{ {param.name} = "…" }}')


def _param(task: Task, declared: Mapping[str, Param], name: str, value: Template) -> Iterator[InvalidValue]:
    """Yield why a task does not take a value for a parameter."""
    if name not in declared:
        remedy = nearest(name, declared) or f"declare it in params of {quoted(task.name)}"
        yield InvalidValue(f"not a parameter of {quoted(task.name)}", remedy)
    elif all(isinstance(part, str) for part in value):
        try:
            normal(declared[name], "".join(map(str, value)))
        except InvalidValue as err:
            yield err


def _references(
    path: KeyPath, flow: Task, step: Step, tasks: Mapping[str, Task]
) -> Iterator[tuple[KeyPath, InvalidValue]]:
    """Yield the errors in the references of a step."""
    unit = tasks.get(step.unit)
    named = unit is not None and unit.flow is None
    secret_params = {param.name for param in unit.params if param.secret} if unit is not None and named else set()
    places: list[tuple[KeyPath, Template, bool]] = [
        (("params", name), template, name in secret_params) for name, template in step.params.items()
    ]
    for name, items in step.each.items():
        found = (items,) if isinstance(items, Reference) else tuple(part for item in items for part in item)
        places.append((("each", name), found, False))
        if any(isinstance(part, Reference) and part.of == "each" for part in found):
            yield (*path, "each", name), InvalidValue("refers to a list of the same step", "write it out")
    for place, template in unit.references if unit is not None and not named else ():
        places.append((("env" if isinstance(place, str) else "run", place), template, isinstance(place, str)))
        if place == 0:
            yield (*path, "run", 0), InvalidValue("has a reference in the name of the program", "write it out")
        if isinstance(place, str) and is_reserved(place):
            message = "cannot have a reference: this variable controls which programs execute, or belongs to the daemon"
            yield (*path, "env", place), InvalidValue(message, "use another name")
    for key_path, template, takes_secrets in places:
        for part in template:
            if isinstance(part, Reference) and (invalid := _invalid_reference(part, flow, step, tasks, takes_secrets)):
                yield (*path, *key_path), invalid


def _invalid_reference(
    reference: Reference,
    flow: Task,
    step: Step,
    tasks: Mapping[str, Task],
    takes_secrets: bool,
) -> InvalidValue | None:
    """Return what is wrong with a reference; None if it is valid.

    Args:
        reference: the reference.
        flow: the flow.
        step: the step that has it.
        tasks: all tasks.
        takes_secrets: whether its place keeps a secret.
    """
    name = reference.name
    if reference.of == "step":
        units = {other.name: other.unit for other in flow.steps}
        if name not in units:
            return InvalidValue(f"refers to the step {quoted(name)}, which does not exist", nearest(name, units))
        if name not in reachable(flow.steps, step.name):
            message = f"refers to the step {quoted(name)}, which need not have ended before"
            return InvalidValue(message, f'add "{name}" to after' if name != step.name else None)
        task = tasks.get(units[name])
        if reference.key != EXIT_CODE and task is not None and (task.steps or task.launcher is not None):
            owner = "is a flow" if task.steps else "runs through a launcher"
            message = f"refers to an output of the step {quoted(name)}, which {owner} and writes none"
            return InvalidValue(message, f"only ${{step:{name}.{EXIT_CODE}}} exists")
    elif reference.of == "param":
        declared = {param.name: param for param in flow.params}
        if name not in declared:
            remedy = nearest(name, declared) or f"declare it in params of the flow {quoted(flow.name)}"
            return InvalidValue(f"refers to the parameter {quoted(name)}, which the flow does not have", remedy)
        if declared[name].secret and not takes_secrets:
            message = f"refers to the parameter {quoted(name)}, which is secret"
            return InvalidValue(message, "put it into env, or into a parameter that is secret too")
    elif reference.of == "each" and name not in step.each:
        return InvalidValue(
            f"refers to the list {quoted(name)}, which the step does not have", nearest(name, step.each)
        )
    return None


def unintended(tasks: Mapping[str, Task]) -> Iterator[Found]:
    """Yield warnings about steps that can never begin, and about conditions that stop all steps behind them."""
    for flow in tasks.values():
        steps = {step.name: step for step in flow.steps}
        for step in flow.steps:
            path = ("steps", step.name, "when")
            unit = tasks.get(step.unit)
            if unit is not None and unit.only_if is not None and not step.optional:
                behind = [other.name for other in flow.steps if step.name in other.after and other.when == "success"]
                if behind:
                    message = f"if its condition says no, {' and '.join(map(quoted, behind))} will be passed over too"
                    remedy = "to let them begin, add optional = true"
                    yield flow.name, ("steps", step.name), InvalidValue(message, remedy)
            if unit is not None and (step.needs_approval or unit.needs_approval):
                yield from _short_limit(flow, step, unit)
            if step.when == "failure" and not step.after:
                message = "never begins: it has no step before it that could fail"
                yield flow.name, path, InvalidValue(message, 'add after = ["…"]')
            if step.when == "success" and (handler := _unreachable_behind(step, steps)) is not None:
                message = (
                    f"never begins: {quoted(handler.name)} begins only after a failure of"
                    f" {' or '.join(map(quoted, handler.after))}, whose success the step needs too"
                )
                yield flow.name, path, InvalidValue(message, 'write when = "end"')


def _short_limit(flow: Task, step: Step, unit: Task) -> Iterator[Found]:
    """Yield a warning about a flow that ends before the time for an approval inside it does."""
    if flow.timeout_ms is not None and flow.timeout_ms < unit.approval_timeout_ms:
        limit, wait = format_duration(flow.timeout_ms), format_duration(unit.approval_timeout_ms)
        message = f"may wait for its approval for {wait}, but the timeout of the flow is {limit}"
        where = "of the task" if unit.flow is None else "here"
        remedy = f"lower approval_timeout {where}, or raise the timeout of the flow"
        yield flow.name, ("steps", step.name), InvalidValue(message, remedy)


def _unreachable_behind(step: Step, steps: Mapping[str, Step]) -> Step | None:
    """Return a failure handler behind which a step never begins, because it also needs the handled steps' success."""
    needed: set[str] = set()
    rest = [*step.after]
    while rest:
        name = rest.pop()
        if name not in needed:
            needed.add(name)
            rest += steps[name].after if steps[name].when == "success" else ()
    handlers = (steps[name] for name in needed if steps[name].when == "failure")
    return next((handler for handler in handlers if needed.issuperset(handler.after)), None)
