"""Flows: the tasks and steps that their tables make, and the values that these inherit."""

from collections.abc import Callable

import msgspec
import pytest

from supervisor.config.cross_checks import selects
from supervisor.config.flows.flow_keys import MAX_STEPS, OF_BOTH, OF_FLOWS, OF_STEPS, OF_TASKS
from supervisor.config.key_tables import keys_of
from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from supervisor.config.value_records import Reference, Step
from tests.config.conftest import Write

Load = Callable[..., Config]
EXAMPLE = """
[tasks.load]
run = ["./load"]
params = [{ name = "source", kind = "arg" }, { name = "day", kind = "arg" }]

[flows.nightly]
cron = "0 2 * * *"
timeout = "4h"
params = [{ name = "day", default = "today" }]

[flows.nightly.steps.extract]
run = "./extract.sh"
retry_attempts = 2

[flows.nightly.steps.clean]
after = ["extract"]
run = ["./clean", "--in=${step:extract.path}", "${step:extract.count:-0}"]
env = { DAY = "${param:day}", FLOW = "$${flow:id}", HOME_DIR = "${PLACE}/${flow:id}" }

[flows.nightly.steps.load]
after = ["clean"]
task = "load"
params = { source = "${step:extract.path}", day = "1" }

[flows.nightly.steps.report]
after = ["load"]
run = "./report"
optional = true

[flows.nightly.steps.alarm]
after = ["load", "report"]
when = "failure"
delay = "1m"
run = "./tell-operations"
"""


@pytest.fixture
def flows(write: Write) -> Load:
    """Load a configuration that may have flows."""

    def load_text(text: str, **environ: str) -> Config:
        return load(str(write(text)), environ)

    return load_text


def test_flow(flows: Load) -> None:
    """A flow is a task with steps; a step with a command is a task of its own, and one with `task` is not."""
    loaded = flows(EXAMPLE, PLACE="${step:extract.path}", TZ="UTC")
    assert list(loaded.tasks) == [
        "load",
        "nightly",
        "nightly:extract",
        "nightly:clean",
        "nightly:report",
        "nightly:alarm",
    ]
    flow = loaded.tasks["nightly"]
    assert (flow.kind, flow.crons, flow.timeout_ms, flow.flow, flow.run) == (
        "task",
        ("0 2 * * *",),
        14_400_000,
        None,
        "",
    )
    assert [(param.name, param.kind, param.default) for param in flow.params] == [("day", None, "today")]
    assert flow.steps == (
        Step(name="extract", unit="nightly:extract"),
        Step(name="clean", unit="nightly:clean", after=("extract",)),
        Step(
            name="load",
            unit="load",
            after=("clean",),
            params={"source": (Reference("step", "extract", "path"),), "day": ("1",)},
        ),
        Step(name="report", unit="nightly:report", after=("load",), optional=True),
        Step(name="alarm", unit="nightly:alarm", after=("load", "report"), when="failure", delay_ms=60_000),
    )
    extract, clean = loaded.tasks["nightly:extract"], loaded.tasks["nightly:clean"]
    assert (extract.flow, extract.step, extract.retry_attempts, extract.steps) == ("nightly", "extract", 2, ())
    assert dict(clean.references) == {
        1: ("--in=", Reference("step", "extract", "path")),
        2: (Reference("step", "extract", "count", "0"),),
        "DAY": (Reference("param", "day"),),
        "HOME_DIR": ("${step:extract.path}/", Reference("flow", "id")),
    }
    assert clean.env["FLOW"] == "${flow:id}"


def test_references_only_in_the_text_of_the_file(flows: Load) -> None:
    """Text from variables, files and after `$$` is no reference, and other words of programs stay as they are."""
    task = flows(
        """
        [flows.f.steps.a]
        run = ["sh", "-c", "echo ${HOME} ${step:-1} ${step} $${HOME}", "$${flow:id}", "a${flow:id}b$${flow:id}"]
        env = { A = "${TEXT}", B = "${NOTHING:-none}" }
        """,
        TEXT="${flow:id}",
    ).tasks["f:a"]
    assert task.run == (
        "sh",
        "-c",
        "echo ${HOME} ${step:-1} ${step} $${HOME}",
        "${flow:id}",
        "a${flow:id}b${flow:id}",
    )
    assert dict(task.references) == {4: ("a", Reference("flow", "id"), "b${flow:id}")}
    assert task.env == {"A": "${flow:id}", "B": "none"}


def test_inheritance(flows: Load) -> None:
    """Steps inherit from the defaults of their flow, and from [defaults] but for retries and notifications."""
    loaded = flows(
        """
        [defaults]
        timezone = "Europe/Prague"
        retry_attempts = 2
        timeout = "1h"
        env = { A = "file", B = "file" }
        notify_on_failure = ["ops"]
        heartbeat = "https://ping.test/x"
        silence_alert = "1h"
        keep_runs = 7
        group = "all"
        max_concurrent = 3
        [notifiers.ops]
        url = "ntfy://localhost/ops"
        [flows.f]
        tags = ["nightly"]
        group = "shop"
        [flows.f.defaults]
        env = { B = "flow", C = "${flow:id}", D = "${flow:id}" }
        user = "nobody"
        retry_attempts = 1
        [flows.f.steps.a]
        run = "x"
        env = { C = "step" }
        [flows.g.steps.a]
        run = "x"
        user = "daemon"
        """
    )
    flow, step, other = loaded.tasks["f"], loaded.tasks["f:a"], loaded.tasks["g:a"]
    assert (flow.timezone, flow.keep_runs, flow.notify_on_failure, flow.group) == ("Europe/Prague", 7, ("ops",), "shop")
    assert (flow.retry_attempts, flow.timeout_ms, flow.max_concurrent, flow.env, flow.user) == (0, None, 1, {}, None)
    assert (step.retry_attempts, step.timeout_ms, step.max_concurrent, step.user) == (1, 3_600_000, 3, "nobody")
    assert (step.notify_on_failure, step.heartbeat, step.silence_alert_ms) == ((), None, None)
    assert (step.group, step.tags) == ("shop", ("nightly",))
    assert step.keep_runs == flow.keep_runs
    assert step.env == {"A": "file", "B": "flow", "C": "step", "D": "${flow:id}"}
    assert dict(step.references) == {"D": (Reference("flow", "id"),)}
    assert (other.user, other.group, other.retry_attempts) == ("daemon", "all", 0)


def test_steps_may_run_together(flows: Load) -> None:
    """The number of runs of a step at the same time has no limit by default, unlike that of its flow."""
    loaded = flows('[flows.f.steps.a]\nrun = "x"\n')
    assert (loaded.tasks["f"].max_concurrent, loaded.tasks["f:a"].max_concurrent) == (1, 10_000)


def test_flows_in_included_files(write: Write) -> None:
    """An included file may have flows, and a step may name a task of another file."""
    write('[flows.f.steps.a]\ntask = "t"\n[flows.g.steps.a]\ntask = "f"\n', "more.toml")
    path = write('[daemon]\ninclude = ["more.toml"]\n[tasks.t]\nrun = "x"\n')
    assert [step.unit for step in load(str(path), {}).tasks["g"].steps] == ["f"]


@pytest.mark.parametrize(
    ("after", "when", "warns"),
    [
        (["work", "handler"], "success", True),
        (["between", "handler"], "success", True),
        (["behind"], "success", False),
        (["handler"], "success", False),
        (["work", "handler"], "end", False),
        (["other", "handler"], "success", False),
    ],
)
def test_step_that_never_begins(flows: Load, after: list[str], when: str, warns: bool) -> None:
    """A step that needs the success of a step and of its failure handler never begins, which is a warning."""
    text = f"""
        [flows.f.steps]
        work.run = "x"
        other.run = "x"
        between = {{ run = "x", after = ["work"] }}
        handler = {{ run = "x", after = ["work"], when = "failure" }}
        behind = {{ run = "x", after = ["handler"], when = "success" }}
        last = {{ run = "x", after = {after}, when = "{when}" }}
        """
    expected = (
        ['never begins: "handler" begins only after a failure of "work", whose success the step needs too']
        if warns
        else []
    )
    assert [warning.message for warning in flows(text).warnings] == expected


def test_handler_of_nothing(flows: Load) -> None:
    """A failure handler without a step before it is a warning."""
    (warning,) = flows('[flows.f.steps.a]\nrun = "x"\nwhen = "failure"\n').warnings
    assert (warning.line, warning.key) == (3, "flows.f.steps.a.when")
    assert warning.message == "never begins: it has no step before it that could fail"


def test_limits(write: Write) -> None:
    """A flow has at most 500 steps; steps with a command count as tasks."""
    many = "".join(f's{number}.run = "x"\n' for number in range(MAX_STEPS + 1))
    with pytest.raises(ConfigError, match="has 501 steps, more than 500"):
        load(str(write(f"[flows.f.steps]\n{many}")), {})
    flows = "".join(
        f"[flows.f{flow}.steps]\n" + "".join(f's{number}.run = "x"\n' for number in range(500)) for flow in range(20)
    )
    with pytest.raises(ConfigError, match=r"f19\.steps\.s480: more than 10000 tasks and services"):
        load(str(write(flows)), {})


def test_every_key_of_tasks_has_its_place() -> None:
    """Each key of a task is a key of flows, of steps, or of both."""
    assert sorted(keys_of("task")) == sorted([*OF_FLOWS, *OF_STEPS, *OF_BOTH, *OF_TASKS])


def test_lists(flows: Load) -> None:
    """A step has lists of texts with references, or a list that an earlier step writes."""
    (_, step) = (
        flows(
            """
        [flows.f.steps.split]
        run = "./split"
        [flows.f.steps.clean]
        after = ["split"]
        run = ["./clean", "${each:region}", "${each:file}"]
        each = { region = ["eu", 3, "${flow:id}"], file = "${step:split.files:-[]}" }
        each_max = 2
        fail_fast = true
        """
        )
        .tasks["f"]
        .steps
    )
    assert step.each == {
        "region": (("eu",), ("3",), (Reference("flow", "id"),)),
        "file": Reference("step", "split", "files", "[]"),
    }
    assert (step.each_max, step.fail_fast) == (2, True)


def test_copy_of_the_configuration(flows: Load) -> None:
    """A configuration with flows is the same after JSON, the form in which schedulers keep it."""
    loaded = flows(EXAMPLE + 'each = { region = ["eu"], file = "${step:extract.files}" }\n', PLACE="x")
    assert msgspec.json.decode(msgspec.json.encode(loaded), type=Config) == loaded


def test_export_of_a_flow(flows: Load) -> None:
    """An export of a flow has the lines of its steps."""
    loaded = flows(
        """
        [exports.files]
        type = "file"
        path = "/tmp/lines"
        tasks = ["nightly"]
        [flows.nightly.steps.a]
        run = "x"
        [flows.other.steps.a]
        run = "x"
        """
    )
    export = loaded.exports["files"]
    assert [name for name, unit in loaded.tasks.items() if selects(export, unit)] == ["nightly", "nightly:a"]


def test_step_with_a_condition(flows: Load) -> None:
    """A condition of a step that others follow is a warning, unless the step is optional."""
    text = '[flows.f.steps]\na = { run = "x", only_if = "true" }\nb = { run = "x", after = ["a"] }\n'
    (warning,) = flows(text).warnings
    assert (warning.key, warning.remedy) == ("flows.f.steps.a", "to let them begin, add optional = true")
    assert warning.message == 'if its condition says no, "b" will be passed over too'
    assert flows(text.replace("only_if", "optional = true, only_if")).warnings == ()


def test_approvals(flows: Load) -> None:
    """Steps and named tasks can need an approval; a flow that ends before the approval must come is a warning."""
    text = """
        [tasks.deploy]
        run = "x"
        not_by_starter = true
        approval_timeout = "1h"
        [flows.f]
        timeout = "2h"
        [flows.f.steps.a]
        task = "deploy"
        needs_approval = ["alice"]
        [flows.f.steps.b]
        run = "x"
        needs_approval = true
        """
    loaded = flows(text)
    assert [step.needs_approval for step in loaded.tasks["f"].steps] == [("alice",), True]
    assert (loaded.tasks["deploy"].needs_approval, loaded.tasks["deploy"].not_by_starter) == (False, True)
    (warning,) = loaded.warnings
    assert (warning.key, warning.message) == (
        "flows.f.steps.b",
        "may wait for its approval for 1w, but the timeout of the flow is 2h",
    )
    assert warning.remedy == "lower approval_timeout here, or raise the timeout of the flow"
