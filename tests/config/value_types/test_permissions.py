from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.problems import ConfigError

UNITS = '[tasks.report]\nrun = "true"\n[services.web]\nrun = "true"\n'


def problems(tmp_path: Path, may: str) -> list[str]:
    path = tmp_path / "ringward.toml"
    path.write_text(f"{UNITS}[tasks.t]\nrun = 'true'\nmay = {may}\n")
    path.chmod(0o600)
    try:
        load(str(path))
    except ConfigError as err:
        return [f"{problem.line}: {problem.message}" for problem in err.problems]
    return []


def test_valid_permissions(tmp_path: Path) -> None:
    """Verbs with names of the right kind, or with globs, are accepted."""
    assert problems(tmp_path, '["run:report", "stop:report", "stop:web", "restart:w*", "pause:no-such-*"]') == []


@pytest.mark.parametrize(
    ("may", "message"),
    [
        ('["reload"]', 'must be a permission such as "restart:web"'),
        ('["reload:web"]', 'must begin with a verb (run, start, stop, restart, pause, resume), not "reload:web"'),
        ('["restart:wbe"]', 'no task or service named "wbe"'),
        ('["restart:report"]', "report is a task, and restart is for services"),
        ('["run:web"]', "web is a service, and run is for tasks"),
        ('["restart:a b"]', 'must end with a name or a glob of names, not "restart:a b"'),
        ("[7]", "must be a permission"),
    ],
)
def test_invalid_permissions(tmp_path: Path, may: str, message: str) -> None:
    """An unknown verb, an unknown name and a unit of the wrong kind are errors at the line of the key."""
    (text_of_problem,) = problems(tmp_path, may)
    assert text_of_problem.startswith("7: ")
    assert message in text_of_problem
