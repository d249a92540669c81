"""Loading: the meaning of a valid file, and the report of every error."""

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.config import jsonschema, unit_reader
from supervisor.config.key_tables import KEYS, keys_of
from supervisor.config.keys import Deprecation
from supervisor.config.load import load, load_sections
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, Problem
from supervisor.config.public_definition import definition_text
from supervisor.config.synonyms import KEYS as SYNONYMS
from supervisor.config.value_types import params
from supervisor.config.value_types.probes import KINDS, SETTINGS
from tests.config.conftest import Write

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]


def test_empty_file(config: Load) -> None:
    """An empty file is valid and gives the documented defaults."""
    loaded = config("", TZ="Europe/Prague")
    assert loaded.daemon.data_dir is None
    assert (loaded.daemon.timezone, loaded.daemon.shutdown_timeout_ms) == ("Europe/Prague", 8000)
    assert loaded.daemon.log_level == "info"
    assert loaded.http.listen == (("127.0.0.1", 7464),)
    assert (loaded.http.socket, loaded.http.workers, loaded.http.password_file) == (None, 1, None)
    assert loaded.storage.durability == "crash"
    assert (loaded.storage.compress_after_ms, loaded.storage.max_log_bytes) == (3_600_000, None)
    assert (loaded.tasks, loaded.services) == ({}, {})


def test_task_defaults(config: Load) -> None:
    """A task needs only a command, and has the documented defaults."""
    task = config('[tasks.a]\nrun = "true"\n', TZ="UTC").tasks["a"]
    assert (task.name, task.kind, task.run, task.shell) == ("a", "task", "true", "/bin/sh")
    assert task.secrets == {}
    assert (task.working_dir, task.env, task.description, task.group, task.tags) == (None, {}, None, None, ())
    assert (task.crons, task.timezone, task.run_on_start) == ((), "UTC", False)
    assert (task.max_concurrent, task.on_overlap, task.queue_max, task.timeout_ms) == (1, "queue", 100, None)
    assert (task.stop_signal, task.grace_ms) == (signal.SIGTERM, 5000)
    assert (task.retry_attempts, task.retry_delay_ms) == (0, 5000)
    assert (task.retry_backoff, task.retry_max_delay_ms) == ("exponential", 300_000)
    assert (task.exit_codes, task.tty, task.merge_stderr, task.log_max_bytes) == ((0,), False, False, 100 << 20)
    assert task.redraw
    assert task.api_trigger is True


def test_service_defaults(config: Load) -> None:
    """A service needs only a command, and has the documented defaults."""
    service = config('[services.a]\nrun = ["sleep", "9"]\n').services["a"]
    assert (service.kind, service.run, service.instances, service.restart) == ("service", ("sleep", "9"), 1, "always")
    assert (service.restart_delay_ms, service.restart_backoff) == (1000, "exponential")
    assert (service.restart_max_delay_ms, service.restart_attempts, service.healthy_after_ms) == (60_000, 3, 10_000)


def test_all_keys(config: Load, tmp_path: Path) -> None:
    """Each key reaches the record in its converted form; explicit zeros stay zeros, and paths start from the file."""
    loaded = config(
        """
        [daemon]
        data_dir = "data"
        timezone = "Asia/Tokyo"
        shutdown_timeout = "0s"
        log_level = "debug"
        [http]
        listen = ["localhost:1", "[::1]:2", "127.1.2.3:3"]
        socket = "run/x.sock"
        workers = 2
        password_file = "/etc/pw"
        [storage]
        durability = "power"
        compress_after = "0s"
        max_log_bytes = "0"
        [tasks.a]
        run = "x"
        shell = "/bin/bash"
        working_dir = "."
        cron = ["@daily", "*/5 * * * 1-5"]
        timezone = "Europe/Prague"
        run_on_start = true
        max_concurrent = 3
        on_overlap = "terminate"
        queue_max = 0
        timeout = "1h30m"
        stop_signal = "int"
        graceful_stop = "0s"
        retry_attempts = 2
        retry_delay = "0"
        retry_backoff = "linear"
        retry_max_delay = "1m"
        exit_codes = [0, 3]
        tty = true
        stderr = "merge"
        redraw = "off"
        log_max_size = "512kb"
        api_trigger = false
        [tasks.b]
        run = "x"
        cron = "@hourly"
        [services.s]
        run = "x"
        instances = 64
        restart = "on_failure"
        restart_delay = "0s"
        restart_attempts = 0
        stop_signal = "SIGRTMIN+3"
        """
    )
    directory = str(tmp_path)
    assert loaded.daemon.data_dir == f"{directory}/data"
    assert (loaded.daemon.shutdown_timeout_ms, loaded.daemon.log_level) == (0, "debug")
    assert loaded.http.listen == (("127.0.0.1", 1), ("::1", 2), ("127.1.2.3", 3))
    assert (loaded.http.socket, loaded.http.password_file) == (f"{directory}/run/x.sock", "/etc/pw")
    assert loaded.storage.durability == "power"
    assert (loaded.storage.compress_after_ms, loaded.storage.max_log_bytes) == (0, 0)
    task = loaded.tasks["a"]
    assert (task.working_dir, task.crons, task.timezone) == (directory, ("@daily", "*/5 * * * 1-5"), "Europe/Prague")
    assert (task.run_on_start, task.max_concurrent, task.on_overlap, task.queue_max) == (True, 3, "terminate", 0)
    assert (task.timeout_ms, task.stop_signal, task.grace_ms) == (5_400_000, signal.SIGINT, 0)
    assert (task.retry_attempts, task.retry_delay_ms, task.retry_max_delay_ms) == (2, 0, 60_000)
    assert (task.exit_codes, task.merge_stderr, task.log_max_bytes, task.api_trigger) == ((0, 3), True, 524_288, False)
    assert task.tty is True
    assert not task.redraw
    assert (loaded.tasks["b"].crons, loaded.tasks["b"].timezone) == (("@hourly",), "Asia/Tokyo")
    service = loaded.services["s"]
    assert (service.instances, service.restart, service.restart_delay_ms) == (64, "on_failure", 0)
    assert service.restart_attempts == 0
    assert service.stop_signal == signal.SIGRTMIN + 3


def test_defaults(config: Load) -> None:
    """[defaults] applies to the kinds that have the key, variables are merged, and a unit's own keys win."""
    loaded = config(
        """
        [defaults]
        timeout = "1m"
        instances = 2
        graceful_stop = "1s"
        env = { A = "1", B = "1" }
        [tasks.a]
        run = "x"
        [tasks.b]
        run = "x"
        timeout = "2m"
        env = { B = "2" }
        [services.s]
        run = "x"
        """
    )
    assert (loaded.tasks["a"].timeout_ms, loaded.tasks["b"].timeout_ms) == (60_000, 120_000)
    assert (loaded.tasks["a"].env, loaded.tasks["b"].env) == ({"A": "1", "B": "1"}, {"A": "1", "B": "2"})
    assert (loaded.services["s"].instances, loaded.services["s"].grace_ms) == (2, 1000)
    assert loaded.services["s"].timeout_ms is None  # the key is for units that end


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[tasks.a]\nrun = 'x'\ntimeot = '5s'\n", ':3: tasks.a.timeot: unknown key\n  did you mean "timeout"?'),
        ("[task.a]\nrun = 'x'\n", ':1: task: unknown table\n  did you mean "tasks"?'),
        ("taks = 1", ':1: taks: unknown key\n  did you mean "tasks"?'),
        ("[tasks.a]\nrun = 'x'\ninstances = 2\n", ":3: tasks.a.instances: not a key of a task\n  only a service"),
        ("[services.a]\nrun = 'x'\ncron = '@daily'\n", ":3: services.a.cron: not a key of a service\n  only a task"),
        ("[tasks.a]\ngroup = 'x'\n", ':1: tasks.a: has no command\n  add run = "…"'),
        ("[tasks.db.backup]\nrun = 'x'\n", 'if "db.backup" is the name of a task, write [tasks."db.backup"]'),
        ("[tasks.'..']\nrun = 'x'\n", ':1: tasks."..": is not a valid name'),
        ("[tasks.'a b']\nrun = 'x'\n", ':1: tasks."a b": is not a valid name'),
        ("[tasks.a]\nrun = 'x'\n[services.a]\nrun = 'x'\n", ":3: services.a: the name is already defined at "),
        ("[[tasks]]\nrun = 'x'\n", ":1: tasks: must hold tables\n  write [tasks.NAME]"),
        ("tasks.a = 1", ":1: tasks.a: must be a table, with the task's name"),
        ("daemon = 1", ":1: daemon: must be a table\n  write [daemon]"),
        ("defaults = 1", ":1: defaults: must be a table"),
        ("[defaults]\nfoo = 1", ":2: defaults.foo: unknown key"),
        ("[daemon]\nlog_level = 'inf'", 'or "error", not "inf"\n  did you mean "info"?'),
        ("[daemon]\ntimezone = 'Europe/Prauge'", 'did you mean "Europe/Prague"?'),
        ("[daemon]\ndata_dir = '~/x'", '"~/x" has a ~, which is not expanded'),
        ("[daemon]\ndata_dir = ''", "must not be empty"),
        ("[daemon]\ninclude = 'x'", 'write ["x"]'),
        ("[http]\nlisten = ['0.0.0.0:80']", "is not a loopback address: without TLS"),
        ("[http]\nlisten = ['[::]:80']", "is not a loopback address: without TLS"),
        ("[http]\nlisten = ['[::ffff:127.0.0.1]:80']", "must be a plain IPv4 or IPv6 address"),
        ("[http]\nlisten = ['example.org:80']", "must be a numeric address"),
        ("[http]\nlisten = ['127.0.0.1']", "must be an address and a port"),
        ("[http]\nlisten = ['127.0.0.1:0']", "must have a port from 1 to 65535, not"),
        ("[http]\nlisten = ['127.0.0.1:1', 'localhost:1']", '[1]: "localhost:1" repeats an earlier item'),
        ("[http]\nworkers = 0", "must be a whole number from 1 to 64, not 0"),
        ("[http]\nworkers = true", "must be a whole number from 1 to 64, not true"),
        (f"[http]\nsocket = '/{'x' * 108}'", "must be at most 107 bytes long"),
        ("[storage]\ndurability = 'none'", 'must be "crash" or "power", not "none"'),
        ("[tasks.a]\nrun = ''", "must not be empty"),
        ("[tasks.a]\nrun = []", "must name a program first"),
        ("[tasks.a]\nrun = ['x', 1]", ":2: tasks.a.run[1]: must be a string, not 1"),
        ('[tasks.a]\nrun = "a\\u0000b"', "must not contain a NUL character"),
        ("[tasks.a]\nrun = 'x'\ncron = '61 * * * *'", ":3: tasks.a.cron: is not a valid schedule"),
        ("[tasks.a]\nrun = 'x'\ncron = ['@daily', '@never']", ":3: tasks.a.cron[1]: is not a valid schedule"),
        ("[tasks.a]\nrun = 'x'\ntimeout = '0s'", "must be a duration from 1ms to"),
        ("[tasks.a]\nrun = 'x'\ntimeout = 90", 'write "90s"'),
        ("[tasks.a]\nrun = 'x'\nlog_max_size = 1048576", "write it with its unit: b, kb"),
        ("[tasks.a]\nrun = 'x'\ndescription = '${file:}'", "a ${file:…} that names no file"),
        ("[tasks.a]\nrun = 'x'\nrun_on_start = 'yes'", 'must be true, false or "boot"'),
        ("[tasks.a]\nrun = 'x'\nstop_signal = 'SIGTRM'", 'did you mean "SIGTERM"?'),
        ("[tasks.a]\nrun = 'x'\nstop_signal = 'SIGSTOP'", "must be a signal that can end a process"),
        ("[tasks.a]\nrun = 'x'\nstop_signal = 'SIGRTMIN+99'", "must be the name of a signal"),
        ("[tasks.a]\nrun = 'x'\nexit_codes = []", "must not be empty"),
        ("[tasks.a]\nrun = 'x'\nexit_codes = [256]", "exit_codes[0]: must be a whole number from 0 to 255"),
        ("[tasks.a]\nrun = 'x'\nlog_max_size = '100kb'", "must be a size from 512kb to 1tb"),
        ("[tasks.a]\nrun = 'x'\nenv = { RINGWARD_X = '1' }", "is reserved: names that begin with RINGWARD_"),
        ("[tasks.a]\nrun = 'x'\nenv = { 'A=B' = '1' }", "is not a valid name of an environment variable"),
        ("[tasks.a]\nrun = 'x'\nenv = ['A=B']", "must be a table of strings"),
        ("[services.a]\nrun = 'x'\ninstances = 65", "must be a whole number from 1 to 64"),
        ("a = [", ":1:6: a: "),
        ("[tasks.a]\nrun = 'x'\nrun = 'y'\n", ":3:10: tasks.a.run: is defined twice\n  remove one of them"),
        ("[tasks.'a b']\n[tasks.'a b']\n", ":2:13: tasks.'a b': is defined twice\n  remove one of them"),
        ("[tasks.a]\nenv = { A = '1', A = '2' }\n", "tasks.a.env: is defined twice"),
        ("[tasks.a]\nuser = www-data\n", ":2:8: tasks.a.user: has an invalid value\n  put text into quotes"),
        ("[tasks.a]\ntimeout = 5s # long\n", "tasks.a.timeout: has an invalid value\n  put text into quotes"),
        ("[tasks.a]\nrun = 'x' 'y'\n", ":2:11: tasks.a.run: expected newline"),
        (
            '[tasks.a]\nrun = "grep \\d"\n',
            "tasks.a.run: unescaped '\\' in a string\n  write \\\\, or use single",
        ),
        ("[tasks.übung]\n", "is not a name, at least not without quotes\n  a name has 1 to 100 ASCII letters"),
        ("[tasks.größe]\n", "is not a name, at least not without quotes\n  a name has 1 to 100 ASCII letters"),
        ("[tasks.my job]\n", 'tasks: "my job" is not a name, at least not without quotes\n  a name has 1 to'),
        ("[tasks.my:job]\n", 'it needs quotes: [tasks."db.backup"]'),
        ("[tasks.'my job']\nrun = 'x'\n", "is not a valid name\n  a name has 1 to 100 ASCII letters"),
        ("tasks:\n  backup:\n    run: x\n", ":1:6: is YAML, not TOML\n  write a table such as [tasks.backup]"),
        ("---\ntasks:\n", ":1:4: is YAML, not TOML"),
        ("[tasks.a]\nrun: x\n", ":2:4: is YAML, not TOML"),
        ('{"tasks": {}}', ":1:1: is JSON, not TOML\n  write a table such as [tasks.backup]"),
        ('{\n  "tasks": {}\n}\n', "is JSON, not TOML"),
        ("[tasks.a]\nrun = echo hi\n", 'put text into quotes: run = "echo hi"'),
        ("[tasks.a]\ncron = 0 3 * * *\n", 'put text into quotes: cron = "0 3 * * *"'),
        ('[tasks.a]\nrun = echo "hi" # x\n', 'put text into quotes: run = "…"'),
        ("[tasks.a]\nrun = 'x'\ncron = '@dayly'", "unknown macro @dayly; did you mean @daily?"),
        ("[http]\nhost = '0.0.0.0'\n", 'http.host: unknown key\n  did you mean "listen"?'),
        ("timeout = '5s'\n", ":1: timeout: unknown key\n  write it below the header of its table"),
        ("data_dir = '/x'\n", ":1: data_dir: unknown key\n  write it below [daemon]"),
        ("listen = ['127.0.0.1:80']\n", ":1: listen: unknown key\n  write it below [http]"),
        pytest.param("a = " + "9" * 5000, "a number with too many digits", id="digits"),
        pytest.param("[tasks.a]\nrun = 'x'\nkeep_runs = 0x" + "f" * 5000, "a.keep_runs: must be a whole", id="hex"),
        (
            "[services.a]\nrun = 'x'\ndepends_on = [{ name = 'b', until = [1] }]",
            'depends_on[0].until: must be "started"',
        ),
        ("[services.a]\nrun = 'x'\ndepends_on = [{ name = 3, until = 'later' }]", "a.depends_on[0].name: must be the"),
        (
            "[services.a]\nrun = 'x'\ndepends_on = [{ name = 'b', on_restart = 'go' }]",
            'depends_on[0].on_restart: must be "restart" or "stop", not "go"',
        ),
        (
            "[tasks.b]\nrun = 'x'\n[services.a]\nrun = 'x'\ndepends_on = [{ name = 'b', on_restart = 'stop' }]",
            "services.a.depends_on[0]: b is a task",
        ),
    ],
)
def test_errors_have_place_and_remedy(problems: Problems, text: str, expected: str) -> None:
    """An error has file, line, key, message, and the remedy if there is one."""
    shown = "\n".join(str(problem) for problem in problems(text))
    assert expected in shown
    assert "ringward.toml" in shown


@pytest.mark.parametrize("kind", ["task", "service"])
def test_unquoted_dot_in_a_name(problems: Problems, kind: str) -> None:
    """A table below a unit that has a command is taken for a unit whose name needs quotes, also if a key is similar."""
    (problem,) = problems(f"[{kind}s.my.{kind}]\nrun = 'x'\n")
    assert problem.remedy == f'if "my.{kind}" is the name of a {kind}, write [{kind}s."my.{kind}"]'


def test_remedies_are_valid(problems: Problems) -> None:
    """A replacement is suggested only where it is valid, and in the spelling of the file."""
    texts = ("timeout = true", "timeout = inf", "timeout = -5", "cron = 5", "timezone = 5", "exit_codes = true")
    for text in texts:
        (problem,) = problems(f"[tasks.a]\nrun = 'x'\n{text}\n")
        assert problem.remedy is None, text
    (problem,) = problems("[tasks.a]\nrun = 'x'\ntags = '${TAG}'\n", TAG="hidden")
    assert problem.remedy == 'write ["${TAG}"]'


ODD = {
    "number": "1",
    "negative": "-1",
    "digits": "0x" + "f" * 5000,
    "nan": "nan",
    "inf": "-inf",
    "true": "true",
    "empty": '""',
    "text": '"x"',
    "blank": '" "',
    "NUL": '"a\\u0000"',
    "escapes": '"\\u001b[31m\\n%s{x}"',
    "emoji": '"\\U0001F600"',
    "long": f'"{"x" * 200_000}"',
    "digits in text": f'"{"9" * 5000}s"',
    "bytes": '"${BYTES}"',
    "date": "2026-11-21",
    "time": "12:00:00",
    "moment": "2026-11-21T12:00:00Z",
    "list": "[]",
    "lists": "[[[]], [[1]]]",
    "mixed": '[1, "x", true, {}, [], 1.5]',
    "table": "{}",
    "tables": "{ name = [], until = {}, http = [], kind = {}, default = [], memory = {}, a = { b = { c = 1 } } }",
    "list of tables": "[{ name = [], until = {}, kind = [], choices = {}, type = 3 }, {}]",
    "names": '{ "" = "x", "a b" = "", "\\u0000" = "x", "\\n" = 1 }',
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_values(write: Write, value: str) -> None:
    """Any odd value of any key gives at most an error with a printable text."""
    tables = {"daemon": "daemon", "http": "http", "storage": "storage", "notify": "notify"}
    tables |= {"tasks.a": "task", "services.b": "service"}
    text = "".join(
        f"[{table}]\n" + "".join(f"{name} = {value}\n" for name in keys_of(place)) for table, place in tables.items()
    )
    with pytest.raises(ConfigError) as caught:
        load(str(write(text)), {"BYTES": "\udcff"})
    shown = str(caught.value)
    assert shown.replace("\n", "").isprintable()
    assert json.dumps([problem.to_dict() for problem in caught.value.problems]).isascii()


def test_one_error_per_mistake(problems: Problems) -> None:
    """A mistake is reported once, without consequential errors."""
    assert len(problems("[tasks.a]\nrun = 1\n[tasks.b]\nrun = 'x'\n")) == 1
    assert len(problems("[defaults]\ntimeout = 1\n[tasks.a]\nrun = 'x'\n[tasks.b]\nrun = 'x'\n")) == 1


def test_clients_read_only_the_sections_they_need(write: Write) -> None:
    """Clients ignore errors in sections that they do not need, but not in the sections that they read."""
    path = str(write("[http]\nsocket = 'x.sock'\n[tasks.a]\nfoo = 1\n"))
    assert load_sections(path, "daemon", "http", environ={}) == {
        "daemon": {},
        "http": {"socket": str(Path(path).parent / "x.sock")},
    }
    with pytest.raises(ConfigError):
        load_sections(str(write("[http]\nsocket = 1\n")), "http", environ={})


def test_errors_as_json(problems: Problems) -> None:
    """The JSON form of an error has the same facts, and omits unknown ones."""
    (problem,) = problems("[tasks.a]\nrun = 'x'\ntimeot = '5s'\n")
    assert problem.to_dict() == {
        "file": problem.file,
        "line": 3,
        "key": "tasks.a.timeot",
        "message": "unknown key",
        "remedy": 'did you mean "timeout"?',
    }


def test_every_key_is_documented_once_per_table() -> None:
    """No table of the configuration has a key twice, and each key has a text."""
    seen = [(key.name, table) for key in KEYS for table in key.tables]
    assert len(seen) == len(set(seen))
    assert all(key.doc and key.type.expected for key in KEYS)


def test_too_many_units(problems: Problems) -> None:
    """More than 10,000 units are one error."""
    text = "".join(f"[tasks.t{number}]\nrun = 'x'\n" for number in range(10_001))
    assert [problem.message for problem in problems(text)] == ["more than 10000 tasks and services"]


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        ('PIN = "12345"', "6 to 8192 bytes"),
        ('KEY = "12345\\n54321"', "6 to 8192 bytes"),
        ("PIN = 123456", "must be a string"),
    ],
)
def test_secrets_are_never_repeated(config: Load, secrets: str, message: str) -> None:
    """A secret that is too short to mask is refused, and no message shows a value."""
    with pytest.raises(ConfigError, match=message) as caught:
        config(f'[tasks.a]\nrun = "true"\nsecrets = {{ {secrets} }}\n')
    assert f"tasks.a.secrets.{secrets[:3]}" in str(caught.value)
    assert "12345" not in str(caught.value)


def test_secrets_of_the_defaults(config: Load) -> None:
    """Secrets of [defaults] are merged like variables of env."""
    loaded = config(
        '[defaults]\nsecrets = { A = "aaaaaa", B = "bbbbbb" }\n[tasks.a]\nrun = "true"\nsecrets = { A = "cccccc" }\n'
    )
    assert loaded.tasks["a"].secrets == {"A": "cccccc", "B": "bbbbbb"}


def test_unlimited_restart_attempts(config: Load) -> None:
    """restart_attempts takes a number from 0 to 10000 or "unlimited", and an error names both."""
    loaded = config('[services.s]\nrun = "true"\nrestart_attempts = "unlimited"\n')
    assert loaded.services["s"].restart_attempts == math.inf
    for wrong in ('"forever"', "10001", "-1"):
        with pytest.raises(ConfigError, match='from 0 to 10000, or "unlimited"'):
            config(f'[services.s]\nrun = "true"\nrestart_attempts = {wrong}\n')


@pytest.mark.parametrize(
    ("table", "word", "key"),
    [
        ("tasks", "command", "run"),
        ("tasks", "schedule", "cron"),
        ("tasks", "tz", "timezone"),
        ("services", "cwd", "working_dir"),
        ("services", "environment", "env"),
        ("services", "replicas", "instances"),
        ("services", "mem_limit", "limits.memory"),
        ("services", "WorkingDirectory", "working_dir"),
    ],
)
def test_synonyms(problems: Problems, table: str, word: str, key: str) -> None:
    """A key's name in supervisord, systemd or compose files is suggested before a similar spelling."""
    problems_found = problems(f"[{table}.a]\nrun = 'x'\n{word} = 'x'\n")
    assert [problem.remedy for problem in problems_found] == [f'did you mean "{key}"?']


def test_synonyms_name_existing_keys() -> None:
    """No suggestion names a key that does not exist."""
    key_names = {name for kind in ("task", "service", "http") for name in keys_of(kind)}
    for word, candidates in SYNONYMS.items():
        assert word not in key_names
        assert {candidate.partition(".")[0] for candidate in candidates} <= {
            *key_names,
            *KINDS,
            *SETTINGS,
            *params.KEYS,
        }, word


def test_unknown_public_name(config: Load) -> None:
    """A name in `public` that no task or service has is a warning with its line, and with a similar name."""
    loaded = config(
        '[http]\npublic = [\n  "web",\n  "bakcup",\n]\n[services.web]\nrun = "x"\n[tasks.backup]\nrun = "x"\n'
    )
    (warning,) = loaded.warnings
    assert (warning.line, warning.key, warning.message) == (4, "http.public[1]", 'no task or service named "bakcup"')
    assert warning.remedy == 'did you mean "backup"?'


@pytest.mark.parametrize(
    ("zone", "message", "remedy"),
    [
        ("UTC+2", '"UTC+2" is 2 h behind UTC, as in the variable TZ', 'for 2 h ahead of UTC, write "UTC-2"'),
        ("GMT-5:30", '"GMT-5:30" is 5:30 h ahead of UTC', 'for 5:30 h behind UTC, write "GMT+5:30"'),
        ("Etc/GMT+5", '"Etc/GMT+5" is 5 h behind UTC', 'for 5 h ahead of UTC, write "Etc/GMT-5"'),
        ("GMT+0", None, None),
        ("UTC", None, None),
        ("CET-1CEST,M3.5.0,M10.5.0/3", None, None),
        ("Asia/Tokyo", None, None),
    ],
)
@pytest.mark.parametrize("table", ["daemon", "defaults", "tasks.a"])
def test_misleading_zone(config: Load, table: str, zone: str, message: str | None, remedy: str | None) -> None:
    """A time zone with an offset, whose sign people read the other way round, is a warning with both meanings."""
    text = "" if table == "tasks.a" else '[tasks.a]\nrun = "true"\n'
    run = 'run = "true"\n' if table == "tasks.a" else ""
    found = config(f'{text}[{table}]\n{run}timezone = "{zone}"\n').warnings
    assert len(found) == (message is not None)
    for warning in found:
        assert warning.key == f"{table}.timezone"
        assert warning.message.startswith(message or "")
        assert (warning.remedy or "").startswith(remedy or "")


def test_deprecated_key(config: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the test deprecates works, is marked in the schema, and gets a warning with file, line and remedy."""
    old = replace(keys_of("task")["description"], deprecated=Deprecation("1.3.0", "write it as a comment"))
    monkeypatch.setattr(unit_reader, "keys_of", lambda *tables: {**keys_of(*tables), "description": old})
    loaded = config('[tasks.a]\nrun = "true"\ndescription = "x"\n[tasks.b]\nrun = "true"\n')
    assert loaded.tasks["a"].description == "x"
    (warning,) = loaded.warnings
    assert str(warning).endswith(":3: tasks.a.description: is deprecated since 1.3.0\n  write it as a comment")
    monkeypatch.setattr(jsonschema, "keys_of", lambda *_places: {"description": old})
    table = jsonschema.document()["properties"]["tasks"]["additionalProperties"]["properties"]
    assert table["description"]["deprecated"] is True


def test_tasks_that_run_elsewhere(config: Load, tmp_path: Path) -> None:
    """A task with ``external = true`` has a token, and none of the keys about processes, queues and callers."""
    (tmp_path / "token").write_text("0123456789abcdef\n")
    task = config('[tasks.a]\nexternal = true\ncron = "@daily"\ngrace = "1h"\ntoken_file = "token"\n').tasks["a"]
    assert (task.external, task.ping_token, task.grace_period_ms, task.api_trigger) == (
        True,
        "0123456789abcdef",
        3_600_000,
        False,
    )
    assert "0123456789abcdef" not in definition_text(task)
    assert "0123456789abcdef" not in repr(task)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("external = true", "tasks.a: has no token_file"),
        ('external = true\ntoken_file = "short"', "short: must have at least 16 bytes"),
        ('external = true\ntoken_file = "odd"', "odd: must have 16 to 200 letters, digits"),
        (
            'external = true\ntoken_file = "token"\nuser = "root"',
            "a.user: not a key of a task that runs elsewhere",
        ),
        ('run = "true"\ngrace = "5s"', "a.grace: not a key of a task that runs here\n  write graceful_stop"),
        (
            'external = true\ntoken_file = "token"\n[tasks.b]\nexternal = true\ntoken_file = "token"',
            'tasks.b.token_file: has the same token as "a"',
        ),
    ],
)
def test_invalid_tasks_that_run_elsewhere(config: Load, tmp_path: Path, keys: str, problem: str) -> None:
    """Keys that do not fit the place where a task runs are errors, like tokens that no address can have."""
    for name, content in (("token", "0123456789abcdef"), ("short", "0123"), ("odd", "0123456789/abcdef")):
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError) as error:
        config(f"[tasks.a]\n{keys}\n")
    assert problem in str(error.value)
