"""The documentation: complete against the code, and what it shows can be done."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import docutils.core
import docutils.nodes
import pytest

from api.openapi import document_bytes
from api.schemas import REASONS, SERVICE_STATES, TRIGGERS
from api.schemas_informing import KINDS as NOTIFICATION_KINDS
from supervisor.cli import exit_codes
from supervisor.cli.main import COMMANDS, cli
from supervisor.config.load import load
from supervisor.config.schema import KEYS, REQUIRED, keys_of
from supervisor.notify.kinds import KINDS, OF_KIND

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.rst", ROOT / "CHANGELOG.rst", ROOT / "CONTRIBUTING.rst", *sorted(DOCS.glob("*.rst"))]
BY_NAME = {page.stem: page for page in PAGES}
SECTIONS = {
    "[daemon]": "daemon",
    "[http]": "http",
    "[storage]": "storage",
    "[notify]": "notify",
    "[notifiers.NAME]": "notifier",
    "[[routes]]": "route",
}
UNITS = "Tasks and services"
OPERATIONS = json.loads(document_bytes())["paths"]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def parsed(page: Path) -> docutils.nodes.document:
    """The page; any warning is an error."""
    settings = {"halt_level": 2, "report_level": 2, "file_insertion_enabled": False, "raw_enabled": False}
    document = docutils.core.publish_doctree(page.read_text(), str(page), settings_overrides=settings)
    assert isinstance(document, docutils.nodes.document)
    return document


def code(page: Path, language: str) -> list[str]:
    """Code blocks in one language."""
    blocks = parsed(page).findall(docutils.nodes.literal_block)
    return [block.astext() for block in blocks if language in block["classes"]]


def words(page: Path) -> set[str]:
    """Everything that stands between double backquotes."""
    return {literal.astext() for literal in parsed(page).findall(docutils.nodes.literal)}


def section(page: Path, title: str) -> docutils.nodes.section:
    for found in parsed(page).findall(docutils.nodes.section):
        if found[0].astext() == title:
            return found
    raise AssertionError(f"{page.name} has no section {title}")


def rows(page: Path, title: str) -> list[list[str]]:
    """Cells of the first table in a section, without its head."""
    table = next(section(page, title).findall(docutils.nodes.table))
    body = next(table.findall(docutils.nodes.tbody))
    return [[cell.astext() for cell in row.findall(docutils.nodes.entry)] for row in body.findall(docutils.nodes.row)]


def commands(page: Path) -> Iterator[list[str]]:
    """Each call of ringward in the page's console blocks, as its arguments."""
    for block in code(page, "console"):
        for line in re.sub(r"\\\n\s*", " ", block).split("\n"):
            if not line.startswith(("$ ", "# ")):
                continue
            # What stands in $( ) is a command of its own; quotes around it would hide it.
            pieces = [line[2:], *re.findall(r"\$\(([^)]*)\)", line)]
            for piece in pieces:
                for call in re.split(r"&&|\||;|>", piece):
                    try:
                        arguments = shlex.split(call, comments=True)
                    except ValueError:  # cut in the middle of a quote: not a call of its own
                        continue
                    if arguments and arguments[0] in ("ringward", ".venv/bin/ringward"):
                        yield arguments[1:]


@every_page
def test_a_page_parses_without_a_warning(page: Path) -> None:
    """Also the links between sections and the shape of every table."""
    assert parsed(page).findall(docutils.nodes.title)


@every_page
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    """Relative links, files of the repository that are named, and tests that are cited."""
    for reference in parsed(page).findall(docutils.nodes.reference):
        target = reference.get("refuri", "")
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).is_file(), target
    for word in words(page):
        path, _, test = word.partition("::")
        if not re.fullmatch(r"(api|bench|deploy|docs|examples|logring|store|supervisor|tests)/[\w./-]*", path):
            continue
        assert (ROOT / path).exists(), word
        if test:
            functions = {node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")}
            assert test in functions, word


def shown(default: object) -> str:
    """A default as the tables have it."""
    if default is REQUIRED:
        return "required"
    return "-" if default is None else json.dumps(default)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_keys_of_a_section(title: str) -> None:
    """The table has exactly the keys of the schema, in their order, with their defaults."""
    found = [(row[0], row[2]) for row in rows(BY_NAME["configuration"], title)]
    assert found == [(key.name, shown(key.default)) for key in keys_of(SECTIONS[title]).values()]


def test_the_keys_of_tasks_and_services() -> None:
    """As for the sections, and which of the two has each key."""
    wanted = []
    for key in KEYS:
        kinds = key.places & {"task", "service"}
        if kinds:
            wanted.append((key.name, "both" if len(kinds) == 2 else next(iter(kinds)), shown(key.default)))
    assert [(row[0], row[1], row[3]) for row in rows(BY_NAME["configuration"], UNITS)] == wanted


def test_no_place_of_the_schema_is_forgotten() -> None:
    """A new table of the configuration needs a section of its own."""
    assert {place for key in KEYS for place in key.places} == {*SECTIONS.values(), "task", "service"}


@pytest.mark.parametrize(
    ("title", "known"),
    [("End reasons", REASONS), ("Services", SERVICE_STATES), ("Triggers", TRIGGERS)],
)
def test_the_words_that_runs_have(title: str, known: tuple[str, ...]) -> None:
    """Every end reason, service state and trigger is explained, and no other."""
    assert {row[0] for row in rows(BY_NAME["runs"], title)} == set(known)


def test_the_kinds_of_notifications() -> None:
    """Every kind is explained, with its severity; the API has the same ones."""
    assert {row[0]: row[1] for row in rows(BY_NAME["api"], "Notifications")} == OF_KIND
    assert NOTIFICATION_KINDS == KINDS


@pytest.mark.parametrize(
    ("page", "title"), [("README", "Exit statuses of ringward"), ("cli", "Exit codes")], ids=["README", "cli"]
)
def test_the_exit_statuses(page: str, title: str) -> None:
    """Both tables have every exit status of the command line, in order."""
    assert [int(row[0]) for row in rows(BY_NAME[page], title)] == list(exit_codes.MEANINGS)


def parameters(command: click.Command) -> list[click.Parameter]:
    """Those of a command and of the commands below it."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(parameter for one in below for parameter in one.params)]


def test_every_command_has_a_section_with_an_example() -> None:
    """And with each of its own options."""
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
def test_commands_that_are_shown_exist(page: Path) -> None:
    """Each call of ringward in a console block is of a command that exists, with options that it has."""
    context = click.Context(cli)
    shared = {option for parameter in cli.params for option in parameter.opts}
    for arguments in commands(page):
        name = arguments[0]
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            command = command.get_command(context, arguments[1])
        assert command is not None, arguments
        known = shared | {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for argument in arguments[1:]:
            if argument.startswith("-"):
                assert argument.partition("=")[0] in known, arguments


def test_commands_are_found_in_the_pages() -> None:
    """The test above is not passing for want of commands."""
    assert {arguments[0] for arguments in commands(BY_NAME["cli"])} == set(COMMANDS)
    assert {"ps", "run", "logs", "runs", "stop", "password"} <= {call[0] for call in commands(BY_NAME["README"])}


def test_the_endpoints() -> None:
    """The table has exactly the operations of the OpenAPI document."""
    found = {(row[0], row[1]) for row in rows(BY_NAME["api"], "Endpoints")}
    assert found == {(method.upper(), path) for path, methods in OPERATIONS.items() for method in methods}


def test_the_parameters_of_lists() -> None:
    """Every query parameter of both lists of runs is explained."""
    for path in ("/api/runs", "/api/tasks/{taskName}/runs"):
        for parameter in OPERATIONS[path]["get"]["parameters"]:
            assert parameter["name"] in words(BY_NAME["api"]), parameter["name"]


@every_page
def test_addresses_that_are_shown_exist(page: Path) -> None:
    """Every path below /api that is named anywhere is one of the document's."""
    patterns = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in OPERATIONS]
    for path in re.findall(r"(?<!tests)/api/[A-Za-z/{}$0-9-]+", page.read_text()):
        if path != "/api/resources/":  # a directory
            assert any(re.fullmatch(pattern, path) for pattern in patterns), path


@every_page
def test_configurations_that_are_shown_are_valid(page: Path, tmp_path: Path) -> None:
    """Each block of TOML is a whole configuration that loads without an error."""
    for number, block in enumerate(code(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        file.chmod(0o600)
        assert load(str(file), {}).path == str(file)


@pytest.mark.parametrize("name", ["guarantees", "architecture"])
def test_what_proves_it_is_there(name: str) -> None:
    """Each test that a page names as a proof exists, and guarantees.rst names one in every cell."""
    page = BY_NAME[name]
    for proof in sorted(word for word in words(page) if re.match(r"tests/\S+\.py", word)):
        path, _, test = proof.partition("::")
        defined = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
        assert not test or test in defined, proof


def test_every_guarantee_is_proved() -> None:
    """No cell of the first table is without a test, and no failure of the second one."""
    page = BY_NAME["guarantees"]
    assert all("tests/" in cell for row in rows(page, "What dies") for cell in row[1:])
    assert all("tests/" in row[2] for row in rows(page, "What fails"))
