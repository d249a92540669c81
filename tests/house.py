"""Count the house: lines of code by room, and the figures of its shape.

    python -m tests.house

Lines of code are lines without docstrings, comments and blank lines.
"""

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from tests.support.paths import ROOT
from tests.test_architecture import FILES, module_of
from tests.test_rooms import MOST_FILES, circles, folders, room_of

Node = TypeVar("Node", bound=ast.AST)

MOST_LINES = 700
"""The limit of lines in a file."""
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def code_lines(path: Path) -> int:
    """Return the number of lines with code."""
    docstrings: set[int] = set()
    for node in ast.walk(tree_of(path)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def _of(paths: Iterable[Path], kind: type[Node]) -> Iterator[tuple[Path, Node]]:
    for path in paths:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, kind):
                yield path, node


def continuations() -> int:
    """Return how many callbacks the supervisor's processes pass with ``.then(``."""
    functions = (call.func for _, call in _of(_below("supervisor"), ast.Call))
    return sum(isinstance(function, ast.Attribute) and function.attr == "then" for function in functions)


def lambdas() -> int:
    """Return the number of lambda expressions in the product."""
    return sum(1 for _ in _of(FILES, ast.Lambda))


def nested_functions() -> int:
    """Return the number of functions inside methods of the scheduler."""
    methods = (
        method
        for _, owner in _of(_below("supervisor/scheduler"), ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
    )
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for method in methods
        for node in ast.walk(method)
        if node is not method
    )


def _below(folder: str) -> list[Path]:
    return [path for path in FILES if path.is_relative_to(ROOT / folder)]


def names_used_twice() -> dict[str, list[str]]:
    """Return the names that several classes have, with their modules."""
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for path, node in _of(FILES, ast.ClassDef):
        modules[node.name].append(module_of(path))
    return {name: places for name, places in modules.items() if len(places) > 1}


def attributes() -> dict[str, int]:
    """Return the number of attributes of each class that assigns them, inherited ones counted.

    The fields of a frozen dataclass do not count.
    """
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for path, node in _of(FILES, ast.ClassDef):
        name, imported = f"{module_of(path)}.{node.name}", _imported(path)
        own[name] = {
            target.attr
            for part in ast.walk(node)
            for target in _targets(part)
            if isinstance(target.value, ast.Name) and target.value.id == "self"
        }
        if any(ast.unparse(decorator).startswith("dataclass") for decorator in node.decorator_list) and not any(
            "frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            own[name] |= {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
        plain = (base.id for base in node.bases if isinstance(base, ast.Name))
        bases[name] = [imported.get(base, f"{module_of(path)}.{base}") for base in plain]

    def all_of(name: str) -> set[str]:
        return own.get(name, set()).union(*(all_of(base) for base in bases.get(name, [])))

    return {name: len(all_of(name)) for name in own}


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns."""
    given = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in given if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else ():
        for part in ast.walk(target) if isinstance(target, ast.Tuple | ast.List) else [target]:
            if isinstance(part, ast.Attribute):
                yield part


@cache
def _imported(path: Path) -> Mapping[str, str]:
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for _, node in _of([path], ast.ImportFrom)
        for alias in node.names
    }


def foreign_private_attributes() -> list[str]:
    """Return the places that set a private attribute of another object than their own."""
    set_at = [
        (f"{module_of(path)}:{target.lineno}", target.attr, ast.unparse(target.value))
        for path in FILES
        for node in ast.walk(tree_of(path))
        for target in _targets(node)
    ]
    for path, call in _of(FILES, ast.Call):
        if ast.unparse(call.func) in ("setattr", "object.__setattr__"):
            owner, name = call.args[:2]
            known = str(name.value) if isinstance(name, ast.Constant) else "_unknown"
            set_at.append((f"{module_of(path)}:{call.lineno}", known, ast.unparse(owner)))
    return [
        place
        for place, name, owner in set_at
        if name.startswith("_") and not name.startswith("__") and owner not in ("self", "cls")
    ]


def long_files() -> list[str]:
    """Return the files of the product with too many lines."""
    return [module_of(path) for path in FILES if len(path.read_text().splitlines()) > MOST_LINES]


def main() -> None:
    """Print all figures."""
    sizes: Counter[str] = Counter()
    for path in FILES:
        sizes[room_of(module_of(path))] += code_lines(path)
    for room, lines in sorted(sizes.items()):
        print(f"{lines:7,}  {room}")
    print(f"{sum(sizes.values()):7,}  the product")
    print(f"{sum(map(code_lines, (ROOT / 'tests').rglob('*.py'))):7,}  tests")
    largest = max(attributes().items(), key=lambda item: item[1])
    for figure, text in (
        (continuations(), "callbacks passed with .then() in supervisor"),
        (lambdas(), "lambdas"),
        (nested_functions(), "functions nested in methods of the scheduler"),
        (largest[1], f"attributes of the largest object, {largest[0]}"),
        (len(foreign_private_attributes()), "private attributes set from elsewhere"),
        (len(names_used_twice()), "class names used twice"),
        (len(circles()), "circles of imports"),
        (len(folders()), f"rooms with more than {MOST_FILES} files"),
        (len(long_files()), f"files with more than {MOST_LINES} lines"),
    ):
        print(f"{figure:7,}  {text}")


if __name__ == "__main__":
    main()
