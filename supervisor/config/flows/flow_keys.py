"""The keys of the tables of a flow: which keys of tasks a flow has, which its steps have, and those of steps only."""

import math
import re

from msgspec import Struct
from msgspec.structs import replace

from supervisor.config.keys import Key
from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import When
from supervisor.config.value_types.params import Params, ParamValue
from supervisor.config.value_types.permissions import Approvers
from supervisor.config.value_types.values import Choice, Duration, Flag, Integer, ListOf, Name, TextOf, parse_parts

MAX_STEPS = 500
MAX_ITEMS = 256
"""Maximum number of runs that a step has at once, one for each combination of its lists."""
STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
STEP_NAME_RULE = "a step's name has 1 to 40 ASCII letters, digits, _ and -, and begins with a letter or _"
FLOW, STEP, NAMED_STEP, STEP_DEFAULTS = "flow", "step", "named_step", "step_defaults"
FLOW_TABLES = frozenset({FLOW, STEP, NAMED_STEP, STEP_DEFAULTS})
"""The tables: a flow, a step with a command, a step with ``task``, and ``[flows.NAME.defaults]``."""
# fmt: off
OF_FLOWS = frozenset({
    "cron", "every", "at", "on_change", "settle", "timezone", "dst_gap", "dst_overlap", "skip_on", "shift",
    "business_day", "jitter", "catch_up", "catch_up_window", "run_on_start", "on_overlap", "queue_max", "coalesce",
    "api_trigger", "retry_superseded", "keep_runs", "keep_for", "keep_refused", "notify_on_missed", "params",
    "finish_by", "requires", "gate_wait",
})
"""Keys of a task that flows have, and steps do not: about instants, queues, callers and retention."""
OF_STEPS = frozenset({
    "run", "shell", "working_dir", "env", "env_file", "env_base", "env_public", "secrets", "secrets_file", "user",
    "umask", "limits", "launcher", "stdin", "may", "uses", "stop_signal", "stop_target", "graceful_stop", "leftovers",
    "exit_codes", "failure_output", "tty", "stderr", "redraw", "log_max_size", "log_on_full", "silence_alert",
    "min_duration", "too_short", "output_required", "only_if", "only_if_timeout", "only_if_retry", "only_if_for",
})
"""Keys of a task that steps have, and flows do not: about processes and slots."""
OF_BOTH = frozenset({
    "description", "group", "tags", "max_concurrent", "queue_priority", "timeout", "retry_attempts", "retry_delay",
    "retry_backoff", "retry_max_delay", "retry_on", "notify_on_failure", "notify_on_success", "max_duration_alert",
    "heartbeat", "expected_duration", "failure_rate", "needs_approval", "not_by_starter", "approval_timeout",
})
OF_TASKS = frozenset({"outputs", "external", "grace", "token_file"})
"""Keys that neither has: all steps can write values, and no step runs elsewhere."""
NOTIFYING = frozenset({
    "notify_on_failure", "notify_on_success", "notify_on_missed", "max_duration_alert", "silence_alert", "heartbeat",
    "expected_duration", "failure_rate", "finish_by",
})
"""Keys that notify somebody; steps have them only in their own tables."""
FROM_DEFAULTS = NOTIFYING | {
    "timezone", "dst_gap", "dst_overlap", "catch_up", "catch_up_window", "jitter", "group", "tags", "keep_runs",
    "keep_for", "keep_refused",
}
"""Keys of ``[defaults]`` that apply to flows."""
# fmt: on
NO_LIMIT = 10_000


class StepParams(Struct, frozen=True):
    """Values for the parameters of the task of a step."""

    expected = 'a table of values such as { day = "${param:day}" }'

    def parse(self, value: object, directory: str) -> dict[str, str]:
        """Return the values as texts."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        return parse_parts(value.items(), lambda _name, content: ParamValue().parse(content, directory))


class EachLists(Struct, frozen=True):
    """The lists for whose combinations a step has runs."""

    expected = 'a table of lists such as { region = ["eu", "us"] }'

    def parse(self, value: object, directory: str) -> dict[str, str | tuple[str, ...]]:
        """Return the lists; a text has one reference, to a list that an earlier step writes."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")

        def parse(name: str, content: object) -> str | tuple[str, ...]:
            if not STEP_NAME.fullmatch(name):
                raise InvalidValue("is not a valid name", f"write {self.expected}", show=False)
            if isinstance(content, list):
                found = parse_parts(enumerate(content), lambda _index, item: ParamValue().parse(item, directory))
                return tuple(found.values())
            if not isinstance(content, str):
                raise InvalidValue("must be a list, or a reference to an output of an earlier step")
            return content

        lists = parse_parts(value.items(), parse)
        if math.prod(len(items) for items in lists.values() if isinstance(items, tuple)) > MAX_ITEMS:
            raise InvalidValue(f"has more than {MAX_ITEMS} combinations", show=False)
        return lists


_AFTER = TextOf("the name of a step", STEP_NAME)
_WHEN = Choice({word: word for word in When.__args__})  # type: ignore[attr-defined]
STEP_KEYS = (
    Key(
        "after",
        ListOf(_AFTER, MAX_STEPS, single=True),
        [],
        "steps that are decided first",
        example=["extract"],
        attribute="after",
    ),
    Key("when", _WHEN, "success", "results of these steps after which it begins", attribute="when"),
    Key("delay", Duration(), "0s", "how long it waits once it may begin", attribute="delay_ms"),
    Key("optional", Flag(), False, "a failure of its runs counts as a success", attribute="optional"),
    Key("each", EachLists(), {}, "lists; the step has a run for each combination", example={"region": ["eu", "us"]}),
    Key(
        "each_max",
        Integer(1, MAX_ITEMS),
        None,
        "number of these runs at the same time",
        attribute="each_max",
        example=4,
    ),
    Key("fail_fast", Flag(), False, "the first failure stops the other runs", attribute="fail_fast"),
)
"""The keys that all steps have, and nothing else has; their attributes are those of :class:`Step`."""
_NAMED_KEYS = (
    Key("task", Name("the name of a task or flow"), None, "the task or flow that it runs", example="load"),
    Key(
        "needs_approval",
        Approvers(),
        False,
        "whether an operator must approve its runs before they start; a list: who may approve",
        example=["alice"],
    ),
    Key("params", StepParams(), {}, "values for parameters of this task"),
)
FLOW_PARAMS = Key("params", Params(flow=True), [], "values that a caller may set, for references in steps")


def of_flows(key: Key) -> Key:
    """Return a key of tasks with the tables of flows that have it too."""
    if "task" not in key.tables or key.name == FLOW_PARAMS.name:
        return key
    tables = set(key.tables)
    if key.name in OF_FLOWS | OF_BOTH:
        tables.add(FLOW)
    if key.name in OF_STEPS | OF_BOTH and key.name != "max_concurrent":
        tables |= {STEP} if key.name in NOTIFYING | {"run"} else {STEP, STEP_DEFAULTS}
    return replace(key, tables=frozenset(tables))


def keys_of_flows(max_concurrent: Key) -> tuple[Key, ...]:
    """Return the keys that only the tables of flows have; `max_concurrent` is that of tasks."""
    return (
        replace(FLOW_PARAMS, attribute="params", tables=frozenset({FLOW})),
        *(replace(key, attribute=None, tables=frozenset({STEP, NAMED_STEP})) for key in STEP_KEYS),
        *(replace(key, tables=frozenset({NAMED_STEP})) for key in _NAMED_KEYS),
        replace(max_concurrent, default=NO_LIMIT, tables=frozenset({STEP, STEP_DEFAULTS})),
    )
