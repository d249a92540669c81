"""The table ``[http.status_page]``."""

from collections.abc import Callable

import pytest

from supervisor.config.model import Config
from supervisor.config.problems import Problem
from supervisor.config.value_records import StatusPageTable

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]


def test_status_page(config: Load) -> None:
    """The status page has a title, a text, sections in their order, and sites that may embed it."""
    text = 'title = "Shop"\ntext = "Hello"\nsections = { Web = ["web"], "Night & day" = ["job"] }\nembed = ["https://a.example"]\n'
    units = '[services.web]\nrun = "x"\n[tasks.job]\nrun = "x"\n'
    loaded = config(f'[http]\npublic = ["web", "job"]\n[http.status_page]\n{text}{units}')
    assert loaded.http.status_page == StatusPageTable(
        title="Shop",
        text="Hello",
        sections=(("Web", ("web",)), ("Night & day", ("job",))),
        embed=("https://a.example",),
    )
    assert loaded.warnings == ()


def test_status_page_with_units_that_are_not_public(config: Load) -> None:
    """Names in sections that `public` lacks are warnings, because the page does not show them."""
    text = '[http]\npublic = ["web"]\n[http.status_page]\ntitle = "Shop"\nsections = { Web = ["wbe", "job"] }\n'
    loaded = config(f'{text}[services.web]\nrun = "x"\n[tasks.job]\nrun = "x"\n')
    assert [(problem.key, problem.remedy) for problem in loaded.warnings] == [
        ("http.status_page.sections.Web[0]", 'did you mean "web"?'),
        ("http.status_page.sections.Web[1]", "add it to public"),
    ]
    (nothing,) = config('[http.status_page]\ntitle = "Shop"\n[tasks.job]\nrun = "x"\n').warnings
    assert nothing.message == "shows nothing, because http.public is empty"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{}", "has no title"),
        ('{ title = "" }', "must not be empty"),
        ('{ title = "T", text = 1 }', "must be a string"),
        ('{ title = "T", sections = { A = [] } }', "must not be empty"),
        ('{ title = "T", sections = { A = ["web"], B = ["web"] } }', 'has "web" in two sections'),
        ('{ title = "T", embed = ["https://a.example/page"] }', "must be an origin"),
        ('{ title = "T", embed = ["https://a.example; script-src *"] }', "must be an origin"),
        ('{ title = "T", embed = ["*", "https://a.example"] }', 'has "*" beside other sites'),
        ('{ title = "T", link = "x" }', "unknown key"),
    ],
)
def test_invalid_status_page(problems: Problems, table: str, message: str) -> None:
    """Errors of the status page name the key."""
    (problem,) = problems(f"[http]\nstatus_page = {table}\n")
    assert "http.status_page" in str(problem)
    assert message in str(problem)
