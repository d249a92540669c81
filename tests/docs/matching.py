"""Compare output with a page, except times, ids and the like, which always differ."""

import re

_ANY, _LINES = r".*", r"(?:.*\n)*?"
_ULID = r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
_VARIABLE = {
    "any": (r"\.\.\.|…", _ANY),
    "ulid": (_ULID, f"({_ULID})"),
    "ending": (r"\b(?=[A-Z]*\d)[0-9A-HJKMNP-TV-Z]{8}\b", r"\b[0-9A-HJKMNP-TV-Z]{8}\b"),
    "time": (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?",) * 2,
    "clock": (r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?(?: [A-Z]{3,4})?)?",) * 2,
    "date": (
        r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [A-Z]{3,4} \d{4}\b",
        r"[^\n]*\d\d:\d\d:\d\d[^\n]*",
    ),
    "version": (r"\bRingward \d+\.\d+\.\d+(?=  |$)", r"Ringward \S+"),
    "span": (r"(?:\bin )?\b\d+(?:\.\d+)?(?:ms|s|m|h|d)\b(?: \d+[smh]\b)?(?: ago)?|\bnow\b",) * 2,
    "amount": (r"\b\d+(?:\.\d+)? (?:bytes|KB|MB|GB|TB|ms|s)\b",) * 2,
    "moment": (r"\b1[789]\d{11}\b",) * 2,
    "digits": (r"\b\d{16,}\b",) * 2,
    "hex": (r"\b(?=[a-f]*\d)(?:[0-9a-f]{8}|[0-9a-f]{16})\b",) * 2,
    "pid": (r"\bpid \d+",) * 2,
    "worker": (r"\bqueue-\d(?= \|)",) * 2,
}
"""The form of each variable value on a page, and its pattern in output."""
_FINDER = re.compile("|".join(f"(?P<{name}>{shown})" for name, (shown, _) in _VARIABLE.items()))
_ERASED = re.compile(r"\x1b\[(\d+)F\x1b\[J")
"""The sequence by which a live display removes a number of lines above the cursor."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Ids:
    """The ids of the session by the ids of the page."""

    def __init__(self) -> None:
        self.real: dict[str, str] = {}

    def matches(self, shown: tuple[str, ...], output: str) -> bool:
        """Return whether the output equals the shown text; if so, learn new ids."""
        learnt: list[str] = []
        match = re.fullmatch(self._pattern(shown, learnt), plain(output))
        if match is not None:
            for name, real in zip(learnt, match.groups(), strict=True):
                self.real.setdefault(name, real)
        return match is not None

    def begins(self, shown: tuple[str, ...], output: str) -> bool:
        """Return whether the shown text, which ends in dots, has been printed."""
        return shown[-1:] == ("...",) and bool(output) and self.matches(shown, output)

    def _pattern(self, shown: tuple[str, ...], learnt: list[str]) -> str:
        return "".join(_LINES if line == "..." else f"{self._line(line, learnt)}\n" for line in shown)

    def _line(self, line: str, learnt: list[str]) -> str:
        pieces, place = [], 0
        for match in _FINDER.finditer(line):
            pieces.append(_literal(line[place : match.start()]))
            place = match.end()
            if match.lastgroup == "ulid" and match[0] in self.real:
                pieces.append(self.real[match[0]])
                continue
            if match.lastgroup == "ulid":
                learnt.append(match[0])
            pieces.append(f"(?:{_VARIABLE[match.lastgroup or 'any'][1]})")
        return "".join((*pieces, _literal(line[place:])))


def ids_of(text: str) -> list[str]:
    """Return the ids in a text."""
    return re.findall(_ULID, text)


def plain(output: str) -> str:
    """Remove erased lines, colours, carriage returns and trailing blanks; every line ends with a newline."""
    while (match := _ERASED.search(output)) is not None:
        before = output[: match.start()].splitlines(keepends=True)
        output = "".join(before[: max(0, len(before) - int(match[1]))]) + output[match.end() :]
    text = _COLOURS.sub("", output).replace("\r", "")
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _literal(text: str) -> str:
    """Return a pattern in which columns are as wide as their values."""
    return re.sub(r"(?:\\ |\\\t|\t)+", r"[ \\t]+", re.escape(text))
