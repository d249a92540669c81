"""Exports in the configuration."""

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.cross_checks import selects
from supervisor.config.diff import ChangedKey, diff
from supervisor.config.keys import Effect
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import Problem

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]
TASKS = """
[tasks.a1]
run = "true"
group = "g"
tags = ["t", "u"]
[tasks.a2]
run = "true"
tags = ["u"]
[services.b]
run = "true"
group = "g"
"""


def export(text: str) -> str:
    return f'{TASKS}[exports.x]\ntype = "file"\npath = "out"\n{text}'


def test_defaults(config: Load, tmp_path: Path) -> None:
    """An export to a file needs only its path, which starts from the configuration's directory."""
    export_of_config = config(export("")).exports["x"]
    assert (
        export_of_config.type,
        export_of_config.path,
        export_of_config.tasks,
        export_of_config.groups,
        export_of_config.tags,
    ) == ("file", f"{tmp_path}/out", (), (), ())
    assert export_of_config.streams == ("stdout", "stderr", "system")
    assert (
        export_of_config.max_size_bytes,
        export_of_config.max_age_ms,
        export_of_config.keep,
        export_of_config.alert_after_ms,
    ) == (100 << 20, 0, 5, 300_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["a1", "a2", "b"]),
        ('tasks = "a*"', ["a1", "a2"]),
        ('tasks = ["a1", "b"]', ["a1", "b"]),
        ('groups = "g"', ["a1", "b"]),
        ('tags = ["t"]', ["a1"]),
        ('tags = ["t", "u"]', ["a1", "a2"]),
        ('tasks = "a*"\ntags = "u"\ngroups = ["g"]', ["a1"]),
    ],
)
def test_selected_units(config: Load, text: str, expected: list[str]) -> None:
    """Names are united, and groups and tags narrow the selection."""
    loaded = config(export(text))
    units: dict[str, Task | Service] = {**loaded.tasks, **loaded.services}
    assert [name for name, unit in units.items() if selects(loaded.exports["x"], unit)] == expected


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[exports.x]\n", "exports.x", "has no type"),
        ('[exports.x]\ntype = "file"\n', "exports.x", "an export of type file needs path"),
        ('[exports.x]\ntype = "pigeon"\n', "exports.x.type", ""),
        ('[exports.x]\ntype = "file"\npath = "a"\nstreams = []\n', "exports.x.streams", "must not be empty"),
        ('[exports.x]\ntype = "file"\npath = "a"\nstreams = ["out"]\n', "exports.x.streams[0]", ""),
        ('[exports.x]\ntype = "file"\npath = "a"\nmax_size = "1kb"\n', "exports.x.max_size", ""),
        ('[exports."a/b"]\ntype = "file"\npath = "a"\n', 'exports."a/b"', "is not a valid name"),
        ('[exports.x]\ntype = "syslog"\n', "exports.x", "an export of type syslog needs address"),
        ('[exports.x]\ntype = "loki"\n', "exports.x", "an export of type loki needs url"),
        ('[exports.x]\ntype = "otlp"\n', "exports.x", "an export of type otlp needs url"),
        (
            '[exports.x]\ntype = "loki"\nurl = "http://l"\nspans = true\n',
            "exports.x.spans",
            "not a key of the type loki",
        ),
        ('[exports.x]\ntype = "loki"\nurl = "loki:3100"\n', "exports.x.url", "must be"),
        ('[exports.x]\ntype = "loki"\nurl = "http://l"\nusername = "u"\n', "exports.x", "belong together"),
        ('[exports.x]\ntype = "loki"\nurl = "http://l"\ntenant = "a\\nb"\n', "exports.x.tenant", "printable ASCII"),
        (
            '[exports.x]\ntype = "loki"\nurl = "http://l"\nusername = "u"\npassword_file = "p"\ntoken_file = "t"\n',
            "exports.x.token_file",
            "cannot be combined with username",
        ),
        ('[exports.x]\ntype = "syslog"\naddress = "unix:/l"\nformat = "bsd"\n', "exports.x.format", "rfc3164"),
        (
            '[exports.x]\ntype = "loki"\nurl = "http://l"\nformat = "rfc5424"\n',
            "exports.x.format",
            "not a key of the type loki",
        ),
        ('[exports.x]\ntype = "journald"\npath = "a"\n', "exports.x.path", "not a key of the type journald"),
        ('[exports.x]\ntype = "syslog"\naddress = "udp://h"\nkeep = 1\n', "exports.x.keep", "not a key of the type"),
        *(
            (f'[exports.x]\ntype = "syslog"\naddress = "{address}"\n', "exports.x.address", "must be")
            for address in (
                "h:514",
                "unix:log",
                "http://h",
                "udp://h:0",
                "udp://h:99999",
                "tcp://u@h",
                "tls://h/p",
                "tcp://",
            )
        ),
        ("[exports]\nx = 1\n", "exports.x", "must be a table, with the export's name"),
        (
            '[exports.x]\ntype = "file"\npath = "a"\n[exports.y]\ntype = "file"\npath = "./a"\n',
            "exports.y.path",
            "the export x writes this file too",
        ),
    ],
)
def test_mistakes(problems: Problems, text: str, key: str, message: str) -> None:
    """Each mistake is one error, with its place."""
    (problem,) = problems(text)
    assert problem.key == key
    assert message in problem.message


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("unix:/dev/log", "unix:/dev/log"),
        ("udp://logs.example.com", "udp://logs.example.com:514"),
        ("tcp://10.0.0.1:1514", "tcp://10.0.0.1:1514"),
        ("tcp://10.0.0.1", "tcp://10.0.0.1:601"),
        ("tls://[::1]", "tls://[::1]:6514"),
    ],
)
def test_syslog_addresses(config: Load, address: str, expected: str) -> None:
    """A host has the usual port of its protocol; a Unix socket is an absolute path."""
    export_of_config = config(f'[exports.x]\ntype = "syslog"\naddress = "{address}"\n').exports["x"]
    assert (export_of_config.address, export_of_config.facility, export_of_config.tls_ca) == (expected, "daemon", None)
    assert export_of_config.format is None


def test_selection_without_a_match(config: Load) -> None:
    """Globs, groups and tags that match no unit are warnings, because units may come later."""
    warnings = config(export('tasks = ["a1", "c*"]\ngroups = ["h"]\ntags = ["v"]')).warnings
    assert [(problem.key, problem.message) for problem in warnings] == [
        ("exports.x.tasks[1]", 'no task or service matches "c*"'),
        ("exports.x.groups[0]", 'no task or service has the group "h"'),
        ("exports.x.tags[0]", 'no task or service has the tag "v"'),
    ]


def test_changed_export(config: Load) -> None:
    """A reload reports changed exports, and applies them at once."""
    difference = diff(config(export("")), config(export("keep = 7")))
    assert difference.sections == {"exports": (ChangedKey("exports", Effect.AT_ONCE),)}
