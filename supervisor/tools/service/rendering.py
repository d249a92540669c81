"""Fills in the package's templates of units, scripts and the first configuration, in which ``@name@`` is a value."""

import os
import re

from supervisor.config.files import lookup

_FOLDER = os.path.join(os.path.dirname(__file__), "templates")
_PLACEHOLDER = re.compile(r"^@(?P<line>[a-z_]+)@\n|@(?P<part>[a-z_]+)@", re.MULTILINE)


def render(template: str, **values: str) -> str:
    """Return the text of a template with its values. A line that consists only of an empty value is omitted."""

    def value(match: re.Match[str]) -> str:
        if match["part"] is not None:
            return values[match["part"]]
        line = values[match["line"]]
        return f"{line}\n" if line else ""

    with open(os.path.join(_FOLDER, template), encoding="utf-8") as file:
        return _PLACEHOLDER.sub(value, file.read())


def first_config(path: str, data: str) -> str:
    """Return a configuration without tasks, whose comments explain the next steps.

    Args:
        path: The path of the configuration.
        data: The data directory.
    """
    data_dir = f'data_dir = "{data}"' if data != lookup.SYSTEM_DATA else f'# data_dir = "{data}"'
    return render("ringward.toml", data_dir=data_dir, directory=path.rpartition("/")[0])
