"""The public view of a definition."""

from pathlib import Path

import msgspec

from supervisor.config.load import load
from supervisor.config.model import Task
from supervisor.config.public_definition import definition_text, recorded_definition
from supervisor.config.value_records import Reference, Step


def test_unlimited_numbers(tmp_path: Path) -> None:
    """Unlimited numbers are the word of the configuration, because JSON has no infinity."""
    path = tmp_path / "ringward.toml"
    path.write_text('[services.s]\nrun = "x"\nrestart_attempts = "unlimited"\nflap_restarts = "unlimited"\n')
    shown = msgspec.json.decode(definition_text(load(str(path), {}).services["s"]))
    assert (shown["restart_attempts"], shown["flap_restarts"]) == ("unlimited", "unlimited")


def test_flow() -> None:
    """A definition shows steps as the file has them; tasks without steps have the same text and hash as before."""
    reference = Reference("step", "extract", "path", "none")
    steps = (
        Step(name="extract", unit="nightly:extract", each={"region": (("eu",), ("us",))}),
        Step(name="load", unit="load", after=("extract",), params={"day": ("on ", Reference("param", "day"))}),
        Step(name="tell", unit="nightly:tell", after=("load",), when="failure", each={"file": reference}),
    )
    shown = msgspec.json.decode(definition_text(Task(name="nightly", run="", steps=steps)))
    assert shown["steps"] == [
        {
            "name": "extract",
            "task": "nightly:extract",
            "after": [],
            "when": "success",
            "each": {"region": ["eu", "us"]},
        },
        {"name": "load", "task": "load", "after": ["extract"], "when": "success", "params": {"day": "on ${param:day}"}},
        {
            "name": "tell",
            "task": "nightly:tell",
            "after": ["load"],
            "when": "failure",
            "each": {"file": "${step:extract.path:-none}"},
        },
    ]
    plain = Task(name="a", run="x")
    assert not {"steps", "flow", "step", "references"} & msgspec.json.decode(definition_text(plain)).keys()
    assert recorded_definition(plain).text == '{"kind": "task", "run": "x"}'


def test_step() -> None:
    """The definition of a step names its flow, and shows references in the command."""
    words = ("./clean", "${step:extract.path}")
    task = Task(
        name="nightly:clean",
        run=words,
        flow="nightly",
        step="clean",
        references=((1, (Reference("step", "extract", "path"),)),),
    )
    shown = msgspec.json.decode(definition_text(task))
    assert (shown["flow"], shown["step"], shown["run"]) == ("nightly", "clean", list(words))
