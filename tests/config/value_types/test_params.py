"""Declarations of task parameters."""

from collections.abc import Callable

import pytest

from supervisor.config.model import Config
from supervisor.config.problems import Problem
from supervisor.config.value_records import Param
from tests.support.host_features import HAS_RE2, needs_re2

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]


@needs_re2
def test_declarations(config: Load) -> None:
    """Defaults and choices may be numbers and booleans, which become the text that the command gets."""
    loaded = config(
        """
        [defaults]
        params = [{ name = "MODE", kind = "env", default = true, type = "boolean" }]
        [tasks.a]
        run = "x"
        [[tasks.a.params]]
        name = "DAY"
        kind = "env"
        required = true
        pattern = "[0-9]+"
        description = "which one"
        [[tasks.a.params]]
        name = "n"
        kind = "option"
        type = "integer"
        choices = [1, "02", 3]
        default = 2
        [[tasks.a.params]]
        name = "dry-run"
        kind = "flag"
        [[tasks.a.params]]
        name = "TOKEN"
        kind = "env"
        secret = true
        default = "${WORD}"
        [tasks.b]
        run = "x"
        cron = "@daily"
        [services.s]
        run = "x"
        """,
        WORD="hunter22",
    )
    assert loaded.tasks["a"].params == (
        Param(name="DAY", kind="env", required=True, pattern="[0-9]+", description="which one"),
        Param(name="n", kind="option", type="integer", choices=("1", "2", "3"), default="2"),
        Param(name="dry-run", kind="flag", type="boolean"),
        Param(name="TOKEN", kind="env", secret=True, default="hunter22"),
    )
    assert loaded.tasks["b"].params == (Param(name="MODE", kind="env", type="boolean", default="true"),)
    assert "hunter22" not in repr(loaded.tasks["a"].params)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ("3", "a.params: must be a list"),
        ("[3]", "a.params[0]: must be a table"),
        ('[{ kind = "env" }]', "a.params[0]: must have a name"),
        ('[{ name = "A" }]', "a.params[0]: must have a kind"),
        ('[{ name = "A", kind = "evn" }]', 'did you mean "env"?'),
        ('[{ name = "A", kind = "env", requierd = true }]', 'did you mean "required"?'),
        ('[{ name = "A", kind = "env" }, { name = "A", kind = "flag" }]', "a.params[1].name: the name is already used"),
        ('[{ name = "A-B", kind = "env" }]', 'a.params[0].name: "A-B" is not a valid name of an environment variable'),
        ('[{ name = "-a", kind = "option" }]', 'a.params[0].name: "-a" is not a valid name'),
        ('[{ name = "a b", kind = "arg" }]', 'a.params[0].name: "a b" is not a valid name'),
        ('[{ name = "a=b", kind = "flag" }]', 'a.params[0].name: "a=b" is not a valid name'),
        ('[{ name = "a", kind = "arg", secret = true }]', "a.params[0].kind: a secret needs the kind env"),
        ('[{ name = "a", kind = "flag", type = "string" }]', "a.params[0].type: must be boolean for a flag"),
        ('[{ name = "a", kind = "flag", choices = ["true"] }]', "cannot be combined with the type boolean"),
        ('[{ name = "a", kind = "arg", type = "integer", pattern = "1" }]', "combined with the type integer"),
        ('[{ name = "a", kind = "arg", choices = ["1"], pattern = "1" }]', "cannot be combined with choices"),
        ('[{ name = "a", kind = "arg", pattern = "(" }]', "a.params[0].pattern: is not a valid regular expression"),
        ('[{ name = "a", kind = "arg", pattern = "a", default = "aa" }]', 'a.params[0].default: must match "a"'),
        ('[{ name = "a", kind = "arg", choices = ["x", "x"] }]', 'a.params[0].choices[1]: "x" repeats an earlier item'),
        (
            '[{ name = "a", kind = "arg", type = "integer", choices = [1, "x"] }]',
            "params[0].choices[1]: must be a whole",
        ),
        ('[{ name = "a", kind = "arg", choices = ["x"], default = "y" }]', 'default: must be "x", not "y"'),
        ('[{ name = "a", kind = "arg", default = "-x" }]', 'a.params[0].default: "-x" must not begin with a hyphen'),
        pytest.param(
            '[{ name = "a", kind = "arg", default = 0x' + "f" * 5000 + " }]",
            "params[0].default: must be a string",
            id="hex",
        ),
        ('[{ name = "a", kind = "arg", default = [] }]', "a.params[0].default: must be a string, a number"),
        ('[{ name = "a", kind = "env", default = "\\u0000" }]', "must not contain a NUL"),
        ('[{ name = "a", kind = "env", required = true, default = "" }]', "must not be empty"),
        ("[" + ",".join(f'{{ name = "a{n}", kind = "env" }}' for n in range(101)) + "]", "at most 100 items"),
    ],
)
def test_mistakes(problems: Problems, params: str, expected: str) -> None:
    """Each mistake is reported once, with its place and the remedy."""
    if "pattern" in params and not HAS_RE2:
        pytest.skip("needs google-re2")
    problems_found = problems(f"[tasks.a]\nrun = 'x'\nparams = {params}\n")
    assert len(problems_found) == 1
    assert expected in str(problems_found[0])


def test_values_for_expressions(config: Load) -> None:
    """A cron expression can have values of parameters, also numbers and booleans; the others get the defaults."""
    loaded = config(
        """
        [tasks.a]
        run = "x"
        params = [{ name = "full", kind = "flag" }, { name = "DAY", kind = "env" }]
        cron = [{ cron = "@weekly", params = { full = true, DAY = 7 } }, "@daily", { cron = "@hourly" }]
        [tasks.b]
        run = "x"
        cron = { cron = "@weekly" }
        """
    )
    task = loaded.tasks["a"]
    assert task.crons == ("@weekly", "@daily", "@hourly")
    assert task.cron_params == ((("full", "true"), ("DAY", "7")), (), ())
    assert loaded.tasks["b"].crons == ("@weekly",)


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "ld_preload",
        "PATH",
        "BASH_ENV",
        "ENV",
        "IFS",
        "PYTHONPATH",
        "PERL5OPT",
        "NODE_OPTIONS",
        "PS4",
        "BASH_FUNC_x",
        "GIT_SSH_COMMAND",
        "RINGWARD_RUN_ID",
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "WATCHDOG_USEC",
    ],
)
def test_reserved_variables(problems: Problems, name: str) -> None:
    """A trigger can neither change which programs execute nor set the daemon's own variables."""
    (problem,) = problems(f"[tasks.a]\nrun = 'x'\nparams = [{{ name = '{name}', kind = 'env' }}]\n")
    assert (problem.key, "cannot be a parameter" in problem.message) == ("tasks.a.params[0].name", True)


def test_similar_variables(config: Load) -> None:
    """Names that only resemble reserved variables are accepted."""
    for name in ("GIT_BRANCH", "PYTHON_VERSION", "NODE_ENV", "LDFLAGS", "SSH_HOST", "HOME_TOWN", "path_prefix"):
        assert config(f"[tasks.a]\nrun = 'x'\nparams = [{{ name = '{name}', kind = 'env' }}]\n").tasks["a"].params


@pytest.mark.parametrize(
    "keys",
    ["cron = '@daily'", "every = '1h'", "at = '2040-01-01T00:00:00Z'", "run_on_start = true", "api_trigger = false"],
)
def test_required_without_a_caller(problems: Problems, config: Load, keys: str) -> None:
    """A required parameter of a task that starts by itself needs a default."""
    task = "[tasks.a]\nrun = 'x'\n{}\nparams = [\n{{ name = 'A', kind = 'env', required = true{} }}]\n"
    (problem,) = problems(task.format(keys, ""))
    assert (problem.key, problem.line, "is required" in problem.message) == ("tasks.a.params[0]", 5, True)
    assert config(task.format(keys, ", default = 'x'")).tasks["a"].params[0].required
    defaults = "[defaults]\nparams = [{ name = 'A', kind = 'env', required = true }]\n[tasks.a]\nrun = 'x'\n"
    (problem,) = problems(defaults + keys)
    assert (problem.key, "is required" in problem.message) == ("tasks.a", True)


def test_messages_hide_secrets(problems: Problems) -> None:
    """No message shows the default of a secret, even beside another mistake."""
    for params in (
        "[{ name = 'A', kind = 'env', secret = true, default = 'wxyz' }]",
        "[{ name = 'A', kind = 'env', secret = true, pattern = 'a', default = 'wxyz1234' }]",
        "[{ name = 'A', kind = 'arg', secret = true, default = 'wxyz1234' }]",
        "[{ name = 'A', kind = 'env', secret = true, choices = ['wxyz1234', 'wxyz1234'] }]",
        "[{ name = 'A', kind = 'env', secret = true, choices = ['wxyz1234'], default = 'another' }]",
    ):
        assert "wxyz" not in "".join(map(str, problems(f"[tasks.a]\nrun = 'x'\nparams = {params}\n")))


def test_parameter_named_like_a_secret(problems: Problems) -> None:
    """A parameter cannot have the name of a secret, which has its value already."""
    text = "[defaults]\nsecrets = { A = 'hunter22' }\n[tasks.a]\nrun = 'x'\nparams = [{ name = 'A', kind = 'env' }]\n"
    (problem,) = problems(text)
    assert problem.key == "tasks.a.params[0].name"


def test_services_have_no_parameters(problems: Problems) -> None:
    """A service cannot have parameters."""
    (problem,) = problems("[services.a]\nrun = 'x'\nparams = []\n")
    assert "only a task has this key" in str(problem)
