"""The scanner that finds the lines of keys."""

from dataclasses import dataclass, field

import tomli
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.config.files.positions import KeyPath, Positions

SAMPLE = """\
# comment
top = 1

[daemon]
data_dir = "data"
include = [
    "a.toml",   # [x]
    'b.toml',
]

[tasks."db.backup"]
run = \"\"\"
[not.a.table]
key = 1
\"\"\"
env = { A = "1", "B C" = '2' }
a.b . c = 3

[[routes]]
name = "first"
[[routes]]
name = "second"
[routes.match]
kinds = []
"""


def test_positions() -> None:
    """Tables, arrays of tables, dotted and quoted keys, inline tables and items of arrays are found."""
    positions = Positions(SAMPLE)
    expected: dict[KeyPath, int] = {
        ("top",): 2,
        ("daemon",): 4,
        ("daemon", "data_dir"): 5,
        ("daemon", "include"): 6,
        ("daemon", "include", 0): 7,
        ("daemon", "include", 1): 8,
        ("tasks", "db.backup"): 11,
        ("tasks", "db.backup", "run"): 12,
        ("tasks", "db.backup", "env", "B C"): 16,
        ("tasks", "db.backup", "a", "b", "c"): 17,
        ("routes", 0, "name"): 20,
        ("routes", 1, "name"): 22,
        ("routes", 1, "match"): 23,
        ("routes", 1, "match", "kinds"): 24,
    }
    assert {path: positions.exact(path) for path in expected} == expected


def test_strings_contain_no_keys() -> None:
    """Text in a multi-line string is not taken for tables or keys."""
    positions = Positions(SAMPLE)
    assert positions.exact(("not", "a", "table")) is None
    assert positions.exact(("tasks", "db.backup", "key")) is None


def test_missing_key_has_its_ancestors_line() -> None:
    """A missing key has the line of the table that should contain it."""
    positions = Positions(SAMPLE)
    assert positions.line(("tasks", "db.backup", "missing", "more")) == 11
    assert positions.line(("nowhere",)) is None
    assert positions.line(()) is None


@given(st.text())
@example('a = """')
@example("[" * 10_000)
@example("a = " + "[" * 10_000)
@example("a" + ".a" * 10_000 + " = 1")
@example('"\\UFFFFFFFF" = 1')
@example("a = {b = {c")
def test_any_text(text: str) -> None:
    """The scanner never fails, whatever text it gets."""
    Positions(text).line(("a", "b"))


@given(st.text(alphabet="ab=.[]{}\"'\\#,\n 1", max_size=200))
def test_toml_like_text(text: str) -> None:
    """The scanner never fails on text made of TOML's own characters."""
    Positions(text).line(("a", "b"))


@dataclass
class _Document:
    """A TOML document under construction, with the line of each key."""

    lines: list[str] = field(default_factory=list)
    expected: dict[KeyPath, int] = field(default_factory=dict)

    def table(self, path: tuple[str, ...]) -> None:
        self.lines.append(f"[{'.'.join(_quoted(key) for key in path)}] # ]")
        self.expected[path] = len(self.lines)

    def pair(self, table: tuple[str, ...], key: str, value: str) -> None:
        self.expected[(*table, key)] = len(self.lines) + 1
        self.lines += f"{_quoted(key)} = {value}".split("\n")


def _quoted(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"' if not key.isalnum() or not key.isascii() else key


KEYS = st.text(alphabet="ab.]=[\"\\# é'", max_size=4)
VALUES = st.one_of(
    st.integers().map(str),
    st.sampled_from(
        [
            '"x # y"',
            "'[a]'",
            '"""\n[a]\nb = 1\n"""',
            "'''\nb = 1\n'''",
            '""""quoted"""""',
            '"\\""',
            "[1, # ]\n  2,\n]",
            "[[1], ['a]']]",
            "{ x = 1, y = [1, 2] }",
            "[{ x = 1 }, { x = '}' }]",
            "1979-05-27 07:32:00",
            "1.5e3",
            "true",
            '"""a\\"""b"""',
        ]
    ),
)


@given(st.lists(st.tuples(KEYS, st.lists(st.tuples(KEYS, VALUES), unique_by=lambda pair: pair[0])), max_size=5))
def test_valid_toml(tables: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """In text that the parser accepts, each table and key has the line where it was written."""
    document = _Document()
    for number, (name, pairs) in enumerate(tables):
        path = ("t", f"{name}{number}")
        document.table(path)
        for key, value in pairs:
            document.pair(path, key, value)
    text = "\n".join(document.lines)
    tomli.loads(text)
    positions = Positions(text)
    assert {path: positions.exact(path) for path in document.expected} == document.expected
