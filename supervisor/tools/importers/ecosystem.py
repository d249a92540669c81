"""Reads pm2's ``ecosystem.config.js``: JSON, or a module, which node evaluates or which consists only of literals."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from supervisor.tools.importers.import_result import UnreadableFile

_TIMEOUT_S = 30
_EVALUATE = """
const [file, result] = process.argv.slice(1);
import(require("node:url").pathToFileURL(file)).then((module) => {
    const found = "default" in module ? module.default : module;
    const plain = (_, value) => (value instanceof RegExp ? String(value) : value);
    require("node:fs").writeFileSync(result, JSON.stringify(found, plain) ?? "null");
    process.exit(0);
}).catch((error) => {
    console.error(String(error));
    process.exit(1);
});
"""
_MODULE = re.compile(
    r"(?:\s|//[^\n]*\n|/\*.*?\*/|['\"]use strict['\"];?)*(?:module\.exports\s*=|export\s+default)", re.DOTALL
)
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`)
    |(?P<number>[-+]?(?:\d[\d_]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\w$])
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<mark>[{}\[\]:,;])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\n)|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_UNDEFINED = object()
_WORDS = {"true": True, "false": False, "null": None, "undefined": _UNDEFINED}


def content(path: str, text: str) -> Any:
    """Return the exported value of the file.

    Raises:
        UnreadableFile: it is neither JSON nor a module that can be read here.
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError as err:
        raise UnreadableFile(f"{path}: is nested too deeply") from err
    if node := shutil.which("node"):
        return _evaluated(node, path)
    return _literal(path, text)


def _evaluated(node: str, path: str) -> Any:
    """Let node evaluate the module, which runs its code, as pm2 does."""
    with tempfile.TemporaryDirectory() as directory:
        result = os.path.join(directory, "result.json")
        try:
            done = subprocess.run(
                [node, "-e", _EVALUATE, os.path.abspath(path), result],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnreadableFile(f"{path}: node did not evaluate it within {_TIMEOUT_S} s") from None
        try:
            with open(result, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it has no exports"]
            raise UnreadableFile(f"{path}: node cannot evaluate it: {last[0]}") from None


def _literal(path: str, text: str) -> Any:
    """Return the exported value of a module that consists of one literal."""
    start = _MODULE.match(text)
    tokens = _Tokens(path, text, start.end() if start else 0)
    if start is None:
        raise tokens.unknown()
    value = tokens.value()
    if tokens.kind == "mark" and tokens.text == ";":
        tokens.advance()
    if tokens.kind:
        raise tokens.unknown()
    return value


class _Tokens:
    """Reads JavaScript literals."""

    def __init__(self, path: str, text: str, start: int) -> None:
        self._path = path
        self._source = text
        self._tokens = self._scan(start)
        self.kind = self.text = ""
        self.at = start
        self.advance()

    def _scan(self, at: int) -> Iterator[tuple[str, str, int]]:
        while at < len(self._source):
            match = _TOKEN.match(self._source, at)
            if match is None:
                yield "unknown", self._source[at], at
                return
            if match.lastgroup:
                yield match.lastgroup, match[0], at
            at = match.end()

    def advance(self) -> None:
        self.kind, self.text, self.at = next(self._tokens, ("", "", len(self._source)))

    def unknown(self) -> UnreadableFile:
        line = self._source.count("\n", 0, self.at) + 1
        return UnreadableFile(
            f"{self._path}:{line}: is not literal, and this host has no node to evaluate it: run"
            f" node -p 'JSON.stringify(require(\"./{os.path.basename(self._path)}\"))' > ecosystem.json"
            " where node is, and import that file"
        )

    def value(self) -> Any:
        """Return the literal that begins at the present token."""
        kind, text = self.kind, self.text
        if kind == "string":
            self.advance()
            return _unescaped(text[1:-1])
        if kind == "number":
            self.advance()
            number = float(text.replace("_", ""))
            return int(number) if number.is_integer() else number
        if kind == "word" and text in _WORDS:
            self.advance()
            return _WORDS[text]
        if kind == "mark" and text == "[":
            items = [self.value() for _ in self._items("]")]
            return [None if item is _UNDEFINED else item for item in items]
        if kind == "mark" and text == "{":
            pairs = [self._pair() for _ in self._items("}")]
            return {key: value for key, value in pairs if value is not _UNDEFINED}
        raise self.unknown()

    def _items(self, end: str) -> Iterator[None]:
        """Yield before each item; a comma may follow the last one."""
        self.advance()
        while self.text != end or self.kind != "mark":
            yield
            if self.kind == "mark" and self.text == ",":
                self.advance()
            elif self.kind != "mark" or self.text != end:
                raise self.unknown()
        self.advance()

    def _pair(self) -> tuple[str, Any]:
        if self.kind not in ("word", "string", "number"):
            raise self.unknown()
        key = _unescaped(self.text[1:-1]) if self.kind == "string" else self.text
        self.advance()
        if self.kind != "mark" or self.text != ":":
            raise self.unknown()
        self.advance()
        return key, self.value()


def _unescaped(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if code := match[1] or match[2] or match[3]:
            return chr(int(code, 16))
        return "" if match[4] else _ESCAPED.get(match[5], match[5])

    return _ESCAPE.sub(replaced, text)
