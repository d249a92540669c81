"""Hooks in the configuration."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.diff import ChangedKey, diff
from supervisor.config.keys import Effect
from supervisor.config.model import Config
from supervisor.config.problems import Problem

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]
SECRET = "0123456789abcdef"
TASK = """
[tasks.deploy]
run = "true"
params = [{ name = "ref", kind = "env", required = true }, { name = "by", kind = "env" }]
[tasks.plain]
run = "true"
[tasks.nightly]
run = "true"
api_trigger = false
[services.web]
run = "true"
"""
REF = 'params = { ref = "$.ref" }\n'


@pytest.fixture(autouse=True)
def secret(tmp_path: Path) -> Path:
    """Write a secret's file beside the configuration."""
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return path


def hook(text: str, kind: str = "generic", task: str = "plain") -> str:
    return f'{TASK}[hooks.h]\ntask = "{task}"\nkind = "{kind}"\nsecret_file = "secret"\n{text}'


def test_valid_hook(config: Load, secret: Path) -> None:
    """The secret is read from its file, paths and conditions are parsed, and no record shows the secret."""
    loaded = config(
        hook(
            'events = ["push"]\nparams = { ref = "$.ref", by = "$.commits[0].author-of.name" }\n'
            'when = { "$.ref" = "refs/heads/main", "$.list[3][0]" = ["a", "b"] }\n',
            "github",
            "deploy",
        )
    )
    parsed_hook = loaded.hooks["h"]
    assert (parsed_hook.task, parsed_hook.kind, parsed_hook.secret, parsed_hook.events) == (
        "deploy",
        "github",
        SECRET,
        ("push",),
    )
    assert parsed_hook.params == {"ref": ("ref",), "by": ("commits", 0, "author-of", "name")}
    assert parsed_hook.when == ((("ref",), ("refs/heads/main",)), (("list", 3, 0), ("a", "b")))
    assert SECRET not in repr(loaded)
    assert str(secret) in loaded.read


@pytest.mark.parametrize(
    "path", ["", "$", "ref", "$ref", "$.", "$..a", "$.a[*]", "$.a[-1]", "$['a']", "$.a b", "$.a[]"]
)
def test_invalid_paths(problems: Problems, path: str) -> None:
    """A path consists of names and indices, and has at least one."""
    (problem,) = problems(hook(f"params = {{ ref = {json.dumps(path)} }}\n", task="deploy"))
    assert problem.key == "hooks.h.params.ref"
    (problem,) = problems(hook(f"when = {{ {json.dumps(path)} = 'x' }}\n"))
    assert problem.key == "hooks.h.when"
    assert "must be a JSON path" in problem.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (hook("", "github"), "hooks.h: has no events, which a github hook requires"),
        (hook("", "gitlab"), 'add events = ["Push Hook"]'),
        (hook('events = ["Push Hook"]\n', "github"), 'hooks.h.events[0]: "Push Hook" is not an event of github'),
        (hook('events = ["push"]\n', "gitlab"), 'hooks.h.events[0]: "push" is not an event of gitlab'),
        (hook('events = ["push"]\n'), "hooks.h.events: has no meaning for a generic hook"),
        (hook("", task="plian"), 'did you mean "plain"?'),
        (hook("", task="web"), 'hooks.h.task: "web" is a service'),
        (hook("", task="nightly"), 'hooks.h.task: "nightly" has api_trigger = false'),
        (hook("", task="deploy"), 'hooks.h: lacks the parameter "ref", which the task "deploy" requires'),
        (hook('params = { ref = "$.a", buy = "$.b" }\n', task="deploy"), 'did you mean "by"?'),
        (hook(REF), 'hooks.h.params.ref: not a parameter of the task "plain"'),
        (hook("params = { ref = 3 }\n", task="deploy"), "hooks.h.params.ref: must be a JSON path"),
        (hook('when = { "$.a" = [] }\n'), 'hooks.h.when."$.a": must not be empty'),
        (hook('when = { "$.a" = 3 }\n'), 'hooks.h.when."$.a": must be a string'),
        (hook('when = "$.a"\n'), "hooks.h.when: must be a table of JSON paths"),
        (hook('secret = "x"\n'), "hooks.h.secret: unknown key"),
        (f"{TASK}[hooks.h]\n", "hooks.h: has no kind"),
        (f"{TASK}[hooks.h]\n", "hooks.h: has no secret_file"),
        (f"{TASK}[hooks.h]\n", "hooks.h: has no task"),
        (f'{TASK}[hooks."a/b"]\n', "is not a valid name"),
        ("hooks = 3\n", "hooks: must hold tables"),
        ("[hooks]\nh = 3\n", "hooks.h: must be a table, with the hook's name"),
        (hook("", "github").replace('"github"', '"githbu"'), 'did you mean "github"?'),
    ],
)
def test_mistakes(problems: Problems, text: str, expected: str) -> None:
    """Each mistake is reported in its place."""
    assert expected in "\n".join(map(str, problems(text)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "must have at least 16 bytes"),
        (b"0123456789abcde\n", "must have at least 16 bytes"),
        (b"0123456789abcdef\n0123456789abcdef\n", "must have one line"),
        (b"\xff" * 16, "is not UTF-8"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_unusable_secret_files(problems: Problems, secret: Path, content: bytes | None, expected: str) -> None:
    """A file without a usable secret is an error that does not show its content."""
    if content is None:
        secret.unlink()
    else:
        secret.write_bytes(content)
    (problem,) = problems(hook(""))
    assert problem.key == "hooks.h.secret_file"
    assert expected in problem.message
    assert "0123" not in str(problem)


def test_changed_hook(config: Load, secret: Path) -> None:
    """A changed hook, and a changed secret, are differences that apply at once."""
    before = config(hook(""))
    secret.write_text(SECRET + "0")
    assert diff(before, config(hook(""))).sections == {"hooks": (ChangedKey("hooks", Effect.AT_ONCE),)}
