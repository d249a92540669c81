"""Notifiers, routes, and the notification keys of tasks."""

import json
from collections.abc import Callable

import pytest

from supervisor.config.diff import diff
from supervisor.config.keys import Effect
from supervisor.config.model import Config
from supervisor.config.problems import Problem
from supervisor.config.public_definition import definition_text
from supervisor.config.value_records import Match, QuietHours

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]
ONE = '[notifiers.n]\nurl = "json://example.com/secret-path"\n'


def test_routes(config: Load) -> None:
    """A route has all of its keys, and their defaults."""
    loaded = config(
        f'{ONE}[[routes]]\nnotify = "n"\n[[routes]]\nnotify = ["n"]\nafter = 3\nfinal_attempt_only = false\n'
        'recovery = false\nquiet = "22:00-07:30"\nmatch = { kinds = ["run.failed"], severity = "warn", tasks = "b*" }\n'
    )
    assert loaded.notifiers["n"].url == "json://example.com/secret-path"
    plain, full = loaded.routes
    assert (plain.match, plain.notify, plain.after, plain.quiet) == (Match(), ("n",), 1, None)
    assert (plain.final_attempt_only, plain.recovery) == (True, True)
    assert full.match == Match(("run.failed",), "warn", "b*")
    assert (full.after, full.final_attempt_only, full.recovery) == (3, False, False)
    assert full.quiet == QuietHours(22 * 60, 7 * 60 + 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[routes]]\nnotify = "x"\n', "routes[0].notify[0]: no notifier named"),
        (
            '[[routes]]\nnotify = "n"\nmatch = { kinds = ["run.slow"] }\nrepeat = "4h"\n',
            "routes[0].repeat: has no effect",
        ),
        ('[[routes]]\nnotify = "n"\nrepeat = "1s"\n', "routes[0].repeat: must be a duration from 1m"),
        ('[[routes]]\nnotify = "n"\nunacked_for = "soon"\n', "routes[0].unacked_for: must be a duration such as"),
        ("[[routes]]\nafter = 2\n", "routes[0]: has no notifiers"),
        ('[routes]\nnotify = "n"\n', "routes: must be an array of tables"),
        ('[[routes]]\nnotify = "n"\nmatch = { kinds = ["run.faild"] }\n', 'did you mean "run.failed"?'),
        ('[[routes]]\nnotify = "n"\nmatch = { task = "x" }\n', 'did you mean "tasks"?'),
        ('[[routes]]\nnotify = "n"\nafter = 0\n', "routes[0].after: must be a whole number"),
        ('[[routes]]\nnotify = "n"\nquiet = "22-7"\n', "routes[0].quiet: must be hours"),
        ('[[routes]]\nnotify = "n"\nquiet = "22:00-22:00"\n', "must not begin and end at the same time"),
        ("[notifiers.x]\n", "notifiers.x: has no URL"),
        ('[notifiers."a b"]\nurl = "json://x"\n', "is not a valid name"),
        ('[notifiers.x]\nurl = "json://x"\ntoken = "y"\n', "notifiers.x.token: unknown key"),
        (
            '[tasks.t]\nrun = "true"\nnotify_on_failure = ["n", "m"]\n',
            "tasks.t.notify_on_failure[1]: no notifier named",
        ),
        ('[services.s]\nrun = "true"\nnotify_on_failure = "m"\n', "services.s.notify_on_failure[0]: no notifier named"),
        ('[services.s]\nrun = "true"\nnotify_on_success = "m"\n', "services.s.notify_on_success[0]: no notifier named"),
        ('[services.s]\nrun = "true"\nheartbeat = "http://localhost/x"\n', "only a task has this key"),
        ('[defaults]\nnotify_on_missed = "m"\n', "defaults.notify_on_missed[0]: no notifier named"),
        ('[daemon]\nheartbeat = "ftp://x"\n', "daemon.heartbeat: must be a URL"),
    ],
)
def test_mistakes(problems: Problems, text: str, expected: str) -> None:
    """Each mistake is reported in its place."""
    assert expected in "\n".join(map(str, problems(ONE + text)))


def test_invalid_name_is_one_error(problems: Problems) -> None:
    """An invalid name of a notifier is one error, and is not also reported as missing."""
    assert len(problems(f'{ONE}[tasks.t]\nrun = "true"\nnotify_on_failure = "a b"\n')) == 1


@pytest.mark.parametrize("key", ["notifiers.x", "tasks.x"])
def test_messages_hide_urls(problems: Problems, key: str) -> None:
    """No message repeats a URL, because URLs contain passwords."""
    name = "url" if key.startswith("notifiers") else "heartbeat"
    message = "\n".join(map(str, problems(f'[{key}]\n{name} = "secret-token with blanks"\n')))
    assert f"{key}.{name}: must be" in message
    assert "secret-token" not in message


def test_records_hide_urls(config: Load) -> None:
    """URLs are hidden in the definition that the API shows and in printed records."""
    task = '[tasks.t]\nrun = "true"\nheartbeat = "http://x/secret-b"\n'
    loaded = config(f'{ONE}[daemon]\nheartbeat = "http://x/secret-a"\n{task}')
    text = definition_text(loaded.tasks["t"])
    assert '"heartbeat": "***"' in text
    assert "secret-" not in text + repr(loaded.daemon) + repr(loaded.tasks["t"]) + repr(loaded.notifiers)


@pytest.mark.parametrize("kind", ["tasks", "services"])
def test_env_public(config: Load, kind: str) -> None:
    """Variables in env_public are shown; other variables and secrets never are."""
    variables = 'env = { A = "seen", B = "hidden-1" }\nsecrets = { C = "hidden-2" }\nenv_public = ["A", "C", "D"]\n'
    loaded = config(f'[{kind}.u]\nrun = "true"\n{variables}')
    shown = json.loads(definition_text(loaded.tasks.get("u") or loaded.services["u"]))
    assert shown["env"] == {"A": "seen", "B": "***"}
    assert shown["secrets"] == {"C": "***"}


def test_env_public_names(problems: Problems) -> None:
    """env_public refuses invalid names of variables."""
    assert len(problems('[tasks.t]\nrun = "true"\nenv_public = ["A=B", "RINGWARD_RUN_ID", 1]\n')) == 3


def test_reload(config: Load) -> None:
    """A reload applies notifiers and routes at once."""
    difference = diff(config(""), config(f'{ONE}[[routes]]\nnotify = "n"\n'))
    assert {name: [key.effect for key in keys] for name, keys in difference.sections.items()} == {
        "notifiers": [Effect.AT_ONCE],
        "routes": [Effect.AT_ONCE],
    }
