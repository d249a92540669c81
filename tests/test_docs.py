"""The documentation: complete against the code, with working examples."""

import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import docutils.nodes
import pytest

from api.openapi import document_bytes
from api.schemas.records import REASONS, SERVICE_STATES, TRIGGERS
from bench.__main__ import ROWS
from ringward import PROCESSES
from supervisor.cli import exit_codes
from supervisor.cli.main import COMMANDS, cli
from supervisor.config.flows.flow_keys import FLOW_TABLES, NAMED_STEP
from supervisor.config.key_tables import EXTERNAL, KEYS, keys_of
from supervisor.config.keys import REQUIRED, Key
from supervisor.config.load import load
from supervisor.config.problems import ConfigError
from supervisor.ipc.notification_kinds import OF_KIND
from supervisor.tools.importers import supervisord, systemd
from tests.docs.blocks import blocks, parsed
from tests.support.host_features import HAS_RE2, require
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.rst")), *sorted(DOCS.rglob("*.rst"))]
BY_NAME = {page.stem: page for page in PAGES}
SECTIONS = {
    "[daemon]": "daemon",
    "[http]": "http",
    "[storage]": "storage",
    "[notify]": "notify",
    "[notifiers.NAME]": "notifier",
    "[[routes]]": "route",
    "[launchers.NAME]": "launcher",
    "[exports.NAME]": "export",
    "[hooks.NAME]": "hook",
    "[slots.NAME]": "slot",
    "[calendars.NAME]": "calendar",
    "[windows.NAME]": "window",
    "Keys of steps": NAMED_STEP,
}
UNITS = "Tasks and services"
OPERATIONS = json.loads(document_bytes())["paths"]

PROCESS_TITLES = {*PROCESSES, "supervisor", "gunicorn", "spare"}
"""Names of the daemon's processes in a list of processes, after ``ringward``."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def code(page: Path, language: str) -> list[str]:
    """Return the code blocks in one language."""
    blocks = parsed(page).findall(docutils.nodes.literal_block)
    return [block.astext() for block in blocks if language in block["classes"]]


def words(page: Path) -> set[str]:
    """Return all texts between double backquotes."""
    return {literal.astext() for literal in parsed(page).findall(docutils.nodes.literal)}


def section(page: Path, title: str) -> docutils.nodes.section:
    for node in parsed(page).findall(docutils.nodes.section):
        if node[0].astext() == title:
            return node
    raise AssertionError(f"{page.name} has no section {title}")


def cells(table: docutils.nodes.table) -> list[list[str]]:
    """Return the text of each cell of a table, row by row, without its head."""
    body = next(table.findall(docutils.nodes.tbody))
    return [
        [cell.astext().strip() for cell in row.findall(docutils.nodes.entry)]
        for row in body.findall(docutils.nodes.row)
    ]


def rows(page: Path, title: str) -> list[list[str]]:
    """Return the cells of the first table in a section."""
    return cells(next(section(page, title).findall(docutils.nodes.table)))


def named_commands(page: Path) -> Iterator[list[str]]:
    """Return the arguments of each command that the page's text names, such as ``ringward logs -f NAME``."""
    for word in words(page):
        if word.startswith("ringward "):
            _, *arguments = takewhile(lambda text: text not in ("|", "&&"), shlex.split(word))
            if arguments[0] not in PROCESS_TITLES:
                yield arguments


def commands(page: Path) -> Iterator[list[str]]:
    """Return the arguments of each call of ringward in the page's console blocks."""
    for block in code(page, "console"):
        for line in re.sub(r"\\\n\s*", " ", block).split("\n"):
            if not line.startswith(("$ ", "# ")):
                continue
            # A command in $( ) counts separately; quotes around it would hide it.
            pieces = [line[2:], *re.findall(r"\$\(([^)]*)\)", line)]
            for piece in pieces:
                for call in re.split(r"&&|\||;|>", piece):
                    try:
                        arguments = shlex.split(call, comments=True)
                    except ValueError:  # cut in the middle of a quote: not a separate call
                        continue
                    if arguments and arguments[0] in ("ringward", ".venv/bin/ringward"):
                        yield arguments[1:]


@every_page
def test_page_parses_without_warnings(page: Path) -> None:
    """A page parses without warnings, including links between sections and the shape of every table."""
    assert parsed(page).findall(docutils.nodes.title)


@every_page
def test_links_and_paths_exist(page: Path) -> None:
    """Relative links, named files of the repository, and cited tests exist."""
    for reference in parsed(page).findall(docutils.nodes.reference):
        target = reference.get("refuri", "")
        if target and not target.startswith(("http://", "https://")):  # without one: a section of this page
            path, _, anchor = target.partition("#")
            assert (page.parent / path).is_file(), target
            assert not anchor or anchor in parsed(page.parent / path).ids, target
    for word in words(page):
        path, _, test = word.partition("::")
        if not re.fullmatch(r"(api|bench|deploy|docs|examples|logring|store|supervisor|tests)/[\w./-]*", path):
            continue
        assert (ROOT / path).exists(), word
        if test:
            functions = {node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")}
            assert test in functions, word


def test_readme_leads_to_every_page() -> None:
    """The README links to every page, so that readers on a code host find them."""
    targets = {link.get("refuri") for link in parsed(BY_NAME["README"]).findall(docutils.nodes.reference)}
    assert {str(page.relative_to(ROOT)) for page in DOCS.rglob("*.rst")} - {"docs/index.rst"} <= targets


def shown(default: object) -> str:
    """Return a default in the form of the tables."""
    if default is REQUIRED:
        return "required"
    return "-" if default is None else json.dumps(default)


@pytest.mark.parametrize("title", SECTIONS)
def test_keys_of_a_section(title: str) -> None:
    """The table has exactly the keys of the schema, in their order, with their defaults."""
    rows_found = [(row[0], row[2]) for row in rows(BY_NAME["configuration"], title)]
    assert rows_found == [(key.name, shown(key.default)) for key in keys_of(SECTIONS[title]).values()]


def test_keys_of_tasks_and_services() -> None:
    """The tables together have every key of the schema, and say which kind of unit has it."""
    expected = []
    for key in KEYS:
        kinds = key.tables & {"task", "service"}
        if kinds:
            expected.append((key.name, "both" if len(kinds) == 2 else next(iter(kinds)), shown(key.default)))
    tables = section(BY_NAME["configuration"], UNITS).findall(docutils.nodes.table)
    assert [(row[0], row[1], row[3]) for table in tables for row in cells(table)] == expected


def _anchor_of(key: Key, table: str) -> str:
    """Return the beginning of a key's anchor; keys that steps and flows share with tasks have the same one."""
    if table in FLOW_TABLES:
        return "key" if key.name in keys_of("task") and table != NAMED_STEP else "step"
    return "key" if table in ("task", "service") else table


def test_every_key_has_an_anchor() -> None:
    """Pages and messages can link to a key: ``#http-listen``, or ``#key-cron`` for a task or service."""
    ids = parsed(BY_NAME["configuration"]).ids
    for key in KEYS:
        for table in key.tables - {EXTERNAL}:
            anchor = f"{_anchor_of(key, table)}-{key.name.replace('_', '-')}"
            assert anchor in ids, f'write ".. _{anchor}:" before ``{key.name}``'


def test_every_table_has_a_section() -> None:
    """Every table of the configuration has its own section."""
    assert {table for key in KEYS for table in key.tables} - (FLOW_TABLES - {NAMED_STEP}) - {EXTERNAL} == {
        *SECTIONS.values(),
        "task",
        "service",
    }


@pytest.mark.parametrize(
    ("title", "documented"),
    [("End reasons", REASONS), ("Services", SERVICE_STATES), ("Triggers", TRIGGERS)],
)
def test_end_reasons_states_and_triggers(title: str, documented: tuple[str, ...]) -> None:
    """Every end reason, service state and trigger is explained, and no other."""
    assert {row[0] for row in rows(BY_NAME["runs"], title)} == set(documented)


def test_kinds_of_notifications() -> None:
    """Every kind is explained with its severity, and the API has the same kinds."""
    assert {row[0]: row[1] for row in rows(BY_NAME["api"], "Notifications")} == OF_KIND
    assert json.loads(document_bytes())["components"]["schemas"]["NotificationKind"]["enum"] == list(OF_KIND)


def test_exit_statuses() -> None:
    """The table of the reference has every exit status of the command line, in order."""
    assert [int(row[0]) for row in rows(BY_NAME["cli"], "Exit codes")] == list(exit_codes.MEANINGS)


def parameters(command: click.Command) -> list[click.Parameter]:
    """Return the options of a command and of its subcommands."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(parameter for command_below in below for parameter in command_below.params)]


def test_every_command_has_a_section_with_an_example() -> None:
    """Every command has a section with an example, and explains each of its options."""
    context = click.Context(cli)
    shared = {name for parameter in cli.params for name in parameter.opts}
    for name in COMMANDS:
        text = section(BY_NAME["cli"], name).astext()
        assert f"$ ringward {name}" in text
        command = cli.get_command(context, name)
        assert command is not None
        for parameter in parameters(command):
            if isinstance(parameter, click.Option) and not shared.intersection(parameter.opts):
                # --json is explained once for all commands.
                assert parameter.opts == ["--json"] or any(option in text for option in parameter.opts), parameter.opts


@every_page
def test_shown_commands_exist(page: Path) -> None:
    """Each call of ringward in a console block, or in the text, is an existing command with existing options."""
    context = click.Context(cli)
    shared = {option for parameter in cli.params for option in parameter.opts}
    for arguments in (*commands(page), *named_commands(page)):
        if arguments[0] in ("--version", "version", "--url", "--help", "help", "COMMAND"):
            continue
        command = cli.get_command(context, arguments[0])
        if isinstance(command, click.Group) and len(arguments) > 1:
            command = command.get_command(context, arguments[1])
        assert command is not None, arguments
        known_options = shared | {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for argument in itertools.takewhile("--".__ne__, arguments[1:]):
            if argument.startswith("-"):
                assert argument.partition("=")[0] in known_options, arguments


def test_commands_are_found() -> None:
    """The search for shown commands finds the commands on the pages."""
    assert {arguments[0] for arguments in commands(BY_NAME["cli"])} == set(COMMANDS)
    assert {"ps", "run", "logs", "runs", "stop", "password"} <= {call[0] for call in commands(BY_NAME["README"])}


def test_endpoints() -> None:
    """The table has exactly the operations of the OpenAPI document."""
    rows_found = {(row[0], row[1]) for row in rows(BY_NAME["api"], "Endpoints")}
    assert rows_found == {(method.upper(), path) for path, methods in OPERATIONS.items() for method in methods}


def test_parameters_of_lists() -> None:
    """Every query parameter of both lists of runs is explained."""
    for path in ("/api/runs", "/api/tasks/{taskName}/runs"):
        for parameter in OPERATIONS[path]["get"]["parameters"]:
            assert parameter["name"] in words(BY_NAME["api"]), parameter["name"]


@every_page
def test_shown_paths_exist(page: Path) -> None:
    """Every path below /api in any page is in the OpenAPI document."""
    patterns = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in OPERATIONS]
    for path in re.findall(r"(?<!tests)/api/[A-Za-z/{}$0-9-]+", page.read_text()):
        if path != "/api/resources/":  # a directory
            assert any(re.fullmatch(pattern, path) for pattern in patterns), path


@every_page
def test_shown_configurations_are_valid(page: Path, tmp_path: Path) -> None:
    """Each TOML block is a whole configuration that loads without an error."""
    for number, block in enumerate(code(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        file.chmod(0o600)
        for hook in tomllib.loads(block).get("hooks", {}).values():
            (tmp_path / hook["secret_file"]).write_text("a secret of the sender")
        if "/etc/ringward/offsite.token" in block:
            (tmp_path / "offsite.token").write_text("0123456789abcdef")
            file.write_text(block.replace("/etc/ringward/", ""))
        try:
            assert load(str(file), {}).path == str(file)
        except ConfigError as err:
            if HAS_RE2 or "google-re2" not in str(err):
                raise


@every_page
def test_configurations_are_toml_blocks(page: Path) -> None:
    """Every text that looks like a configuration is a TOML block, and is therefore loaded."""
    table = re.compile(
        r"\[(daemon|http|storage|notify|defaults|\[routes\]|(tasks|services|notifiers|hooks|slots)\.[^\]]+)\]"
    )
    for block in blocks(page):
        assert block.language in ("toml", "console") or block.file or not table.match(block.text), block.text


@every_page
def test_commands_are_console_blocks(page: Path) -> None:
    """Commands are in console blocks, which are run; scripts and blocks without a prompt say why they are not."""
    for block in blocks(page):
        if block.language in ("sh", "bash") or (not block.language and re.match(r"\$ |(systemctl|sudo) ", block.text)):
            assert block.not_run, block.text


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the HTML pages, ``html``, and of the man pages, ``man``; both are built from one parse."""
    directory = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-d", str(directory / "trees")]
    for builder in ("html", "man"):
        target = ["-b", builder, str(DOCS), str(directory / builder)]
        done = subprocess.run([*command, *target], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    return directory


def test_pages_build_without_warnings(built: Path) -> None:
    """Sphinx builds the pages without warnings: each is in the table of contents, and every reference resolves."""
    for page in DOCS.rglob("*.rst"):
        text = (built / "html" / page.relative_to(DOCS).with_suffix(".html")).read_text()
        assert not re.search(r'href="[\w./-]+\.rst', text), f"{page.name} has a link to a file instead of a page"
        assert not re.search(r'(src|rel="stylesheet" href)="https?:', text), f"{page.name} needs a network"


def test_search_page_shows_recipes(built: Path) -> None:
    """The search page shows the recipe for a question first, even if no page contains all words of the question."""
    assert "_static/recipes.js" in (built / "html/search.html").read_text()
    questions = {
        "job every weekday at 9:00 Berlin time": "run-every-weekday-at-9-in-berlin",
        "mail when a task fails and recovers": "send-email-on-failure-and-on-recovery",
        "run task as a different user": "run-as-another-user",
        "limit memory of a service": "limit-memory-and-processor",
        "restart service every night": "restart-a-service-every-night",
        "run job after another job succeeds": "run-task-b-after-task-a",
        "prevent overlapping runs": "prevent-overlapping-runs",
        "view output of past job": "show-the-output-of-last-tuesday",
        "trigger job from CI and wait for the result": "start-a-task-from-ci-and-wait",
        "retention of 90 days": "keep-90-days-of-history",
    }
    code = f"{(built / 'html/_static/recipes.js').read_text()}\n"
    code += f"console.log(JSON.stringify({json.dumps(list(questions))}.map((one) => findRecipes(one)[0].anchor)))"
    done = subprocess.run([require("node"), "-"], input=code, capture_output=True, text=True, check=True)
    assert dict(zip(questions, json.loads(done.stdout), strict=True)) == questions


def test_man_pages_have_every_command_and_key(built: Path) -> None:
    """``make man`` builds ringward(1) and ringward.toml(5), without addresses of links."""
    commands, keys = ((built / "man" / name).read_text() for name in ("ringward.1", "ringward.toml.5"))
    assert all(f".SH {name.upper()}\n" in commands.replace("\\-", "-") for name in COMMANDS)
    assert all(rf"\fB{key.name}\fP" in keys for key in KEYS)
    assert not any(mark in page for page in (commands, keys) for mark in ("<>", "<#"))


@every_page
def test_shown_json_is_valid(page: Path) -> None:
    """Every JSON block is valid."""
    for block in code(page, "json"):
        json.loads(block)


def test_repeated_defaults_match_the_schema() -> None:
    """The figures of retention on the operations page match the schema."""
    defaults = {key.name: shown(key.default) for key in KEYS}
    for row in rows(BY_NAME["operations"], "Retention"):
        assert defaults[row[0]] in (row[2], "-"), row


def test_imported_keys_are_in_the_tables() -> None:
    """Each imported key of supervisord and systemd is in the table, with the key that it becomes."""
    named = words(BY_NAME["migration"])
    key_names = {key.name for key in KEYS}
    for keys in (supervisord._KEYS, systemd._KEYS, systemd._LIMITS):
        assert keys.keys() <= named
    for row in parsed(BY_NAME["migration"]).findall(docutils.nodes.row):
        for literal in row[1].findall(docutils.nodes.literal):
            word = literal.astext().partition(" = ")[0]
            assert not re.fullmatch(r"[a-z]+(_[a-z]+)+", word) or word in key_names, word


@every_page
def test_rows_of_tables_are_whole(page: Path) -> None:
    """No row of a table begins with a cell that ends in a comma, as a row does whose first cell was continued."""
    for row in parsed(page).findall(docutils.nodes.row):
        assert not row[0].astext().endswith(","), row.astext()


def templates() -> set[str]:
    """Return the texts of the program, with … for inserted values."""
    values = set()
    for directory in ("api", "logring", "store", "supervisor"):
        for file in (ROOT / directory).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    pieces = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                    values.add("".join(pieces))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    values.add(node.value)
    return values


def test_explained_messages_exist() -> None:
    """Each message in the troubleshooting tables is one of the program's, word for word."""
    known_texts = templates()
    explained = 0
    for table in section(BY_NAME["operations"], "Troubleshooting").findall(docutils.nodes.table):
        for row in next(table.findall(docutils.nodes.tbody)).findall(docutils.nodes.row):
            for literal in row[0].findall(docutils.nodes.literal):
                message = literal.astext()
                if " " in message:
                    assert any(message.removesuffix("…").removeprefix("…") in text for text in known_texts), message
                    explained += 1
    assert explained > 20


@pytest.mark.parametrize("name", ["guarantees", "architecture", "threat-model"])
def test_cited_tests_exist(name: str) -> None:
    """Each test that a page names as a proof exists."""
    page = BY_NAME[name]
    for proof in sorted(word for word in words(page) if re.match(r"tests/\S+\.py", word)):
        path, _, test = proof.partition("::")
        defined = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
        assert not test or test in defined, proof


def test_every_guarantee_cites_tests() -> None:
    """Each cell of the first table has its tests in the list below it, and each crash and failure below cites some."""
    page = BY_NAME["guarantees"]
    table = section(page, "Crashes and outages")
    columns = [entry.astext().capitalize() for entry in next(table.findall(docutils.nodes.row))[1:]]
    listed = {}
    for item in section(page, "Tests of crashes and outages").findall(docutils.nodes.definition_list_item):
        lines = [" ".join(line.astext().split()) for line in item.findall(docutils.nodes.list_item)]
        listed[item[0].astext()] = [line.partition(": tests/")[0] for line in lines if ": tests/" in line]
    assert listed == {row[0]: columns for row in rows(page, "Crashes and outages")}
    crashes = list(section(page, "Crashes at particular moments").findall(docutils.nodes.definition))
    failures = list(section(page, "Failures in detail").findall(docutils.nodes.section))[1:]
    assert len(crashes) > 10
    assert len(failures) > 20
    assert all(re.search("Tests?: tests/", table_row.astext()) for table_row in [*crashes, *failures])


def test_every_threat_cites_tests() -> None:
    """Each line of the threat model names at least one test function."""
    tables = [*parsed(BY_NAME["threat-model"]).findall(docutils.nodes.table)]
    lines = [row for table in tables for row in cells(table)]
    assert len(lines) > 40
    assert [what for what, tests in lines if not re.fullmatch(r"(tests/\S+\.py::\w+(, *|,\n)?)+", tests)] == []


def test_every_benchmark_is_explained() -> None:
    """The page on performance lists every row of ``python -m bench``, in order."""
    assert [row[0] for row in rows(BY_NAME["performance"], "Measuring")] == list(ROWS)
