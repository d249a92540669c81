"""Text for terminals and pipes."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.terminal import LogPrinter, coloured, harmless, moment
from tests.support.fake_daemon import line


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_colours() -> None:
    """SGR sequences reach the terminal and do not colour later text."""
    assert coloured("\x1b[1;31mred\x1b[0m") == "\x1b[1;31mred\x1b[0m\x1b[0m"
    assert coloured("plain\ttext") == "plain\ttext"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jx", "^[[2Jx"),
        ("\x1b]0;title\x07", "^[]0;title^G"),
        ("10 %\r20 %\r30 %", "30 %"),
        ("a\x00b\x7f", "a^@b^?"),
        ("\x9b2J", "<9b>2J"),
        ("\u202egpj.exe", "<202e>gpj.exe"),
        ("crlf\r", "crlf"),
    ],
)
def test_control_sequences_are_made_visible(text: str, shown: str) -> None:
    """No text moves the cursor, sets the title or changes the writing direction."""
    assert coloured(text) == shown


@given(st.text())
def test_no_text_controls_the_terminal(text: str) -> None:
    """No output of a run has control characters after filtering."""
    assert not set(harmless(text)) & {*map(chr, range(9)), *map(chr, range(10, 32)), "\x7f", "\x9b"}
    safe_text = coloured(text)
    assert "\x1b]" not in safe_text
    assert "\r" not in safe_text


def test_pipe() -> None:
    """A pipe gets unchanged text, with standard output and error separate; the daemon's lines go to standard error."""
    out, err = io.BytesIO(), io.BytesIO()
    printer = LogPrinter(out, err)
    printer.line(line(0, "\x1b[2J é"))
    printer.line(line(1, "oops", "stderr"))
    printer.line(line(2, "note", "system"))
    printer.finish()
    assert out.getvalue() == "\x1b[2J é\n".encode()
    assert err.getvalue() == b"oops\nnote\n"


@pytest.mark.parametrize(
    ("environment", "note"),
    [
        ({}, b"\x1b[2mnote\x1b[0m"),
        ({"NO_COLOR": ""}, b"\x1b[2mnote\x1b[0m"),
        ({"NO_COLOR": "0"}, b"note"),
        ({"TERM": "dumb"}, b"note"),
    ],
)
def test_terminal(environment: dict[str, str], note: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets filtered text, and the daemon's lines are dim, unless the user or the terminal has no colours."""
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **environment}.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    printer = LogPrinter(out)
    printer.line(line(0, "\x1b[2J"))
    printer.line(line(1, "note", "system"))
    printer.line(line(2, "\x1b[1mbold\x1b[0m"))
    assert out.getvalue() == b"^[[2J\n" + note + b"\n\x1b[1mbold\x1b[0m\x1b[0m\n"


def test_split_line() -> None:
    """Parts of a line are printed as one line, per stream; a complete line of that length stays one."""
    out, err = io.BytesIO(), io.BytesIO()
    printer = LogPrinter(out, err, timestamps=False)
    long = "x" * 16384
    printer.line(line(0, long))
    printer.line(line(1, "error", "stderr"))
    printer.line(line(2, long, continued=True))
    printer.line(line(3, "end", continued=True))
    printer.line(line(4, long))
    printer.line(line(5, "next"))
    printer.line(line(6, long))
    printer.finish()
    assert out.getvalue().decode() == f"{long}{long}end\n{long}\nnext\n{long}\n"
    assert err.getvalue() == b"error\n"


def test_timestamps() -> None:
    """Each line begins with one timestamp, local with an offset; its parts have none."""
    out = io.BytesIO()
    printer = LogPrinter(out, timestamps=True)
    printer.line(line(0, "x" * 16384))
    printer.line(line(1, "y", continued=True))
    printer.line(line(2, "z"))
    times = [moment(1_700_000_000_000 + n) for n in (0, 2)]
    assert out.getvalue().decode() == f"{times[0]} {'x' * 16384}y\n{times[1]} z\n"


def region(*rows: str, stream: str = "stdout") -> dict[str, object]:
    return {"epoch": 1, "rows": list(rows), "stream": stream}


def test_redrawn_line_on_a_terminal() -> None:
    """A terminal shows the lowest row of a drawing, cut at the edge, filtered, and erased before the next output."""
    out = Terminal()
    printer = LogPrinter(out)
    printer.region(region("above", "10 %\x1b[2J"))
    printer.region(region("20 %"))
    printer.line(line(0, "done"))
    printer.region(region("next"))
    printer.region(region())
    printer.finish()
    shown = [b"\x1b[?7l10 %^[[2J\x1b[?7h", b"\x1b[?7l20 %\x1b[?7h", b"done\n\x1b[?7lnext\x1b[?7h", b""]
    assert out.getvalue() == b"\r\x1b[K".join(shown)


def test_pipes_and_json_get_only_settled_lines() -> None:
    """Pipes and JSON get no drawings, only the settled lines."""
    out, terminal = io.BytesIO(), Terminal()
    for printer in (LogPrinter(out), LogPrinter(terminal, as_json=True)):
        printer.region(region("10 %"))
        printer.finish()
    assert out.getvalue() == terminal.getvalue() == b""
