"""The types of regular expressions: for a line of output, and for the whole value of a parameter."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import Struct

from logring.log_search import Pattern
from logring.regex import BadPattern, Re2Missing, compile_re2
from supervisor.config.problems import InvalidValue
from supervisor.config.value_types.values import Text

_VALUE_MEMORY_BYTES = 1 << 20


class RegularExpression(Struct, frozen=True):
    """A regular expression of RE2."""

    compiler: Callable[[str], Any]
    """Raises BadPattern."""
    example: str
    purpose: str = ""

    @property
    def expected(self) -> str:
        """A short description of valid values."""
        return f'a regular expression (RE2) such as "{self.example}"'

    def parse(self, value: object, directory: str) -> str:
        """Return the regular expression, which RE2 accepts."""
        text = Text(limit=1000, empty=False, expected=self.expected).parse(value, directory)
        self.compiled(text)
        return text

    def compiled(self, text: str) -> Any:
        """Return the compiled regular expression.

        Raises:
            InvalidValue: it is invalid, or google-re2 is not installed.
        """
        try:
            return self.compiler(text)
        except Re2Missing as err:
            raise InvalidValue(err.message, err.remedy, show=False) from err
        except BadPattern as err:
            message = f"is not a valid regular expression{self.purpose}"
            raise InvalidValue(message, show=False, reason=str(err)) from err


@lru_cache
def _value_pattern(text: str) -> Any:
    return compile_re2(text, _VALUE_MEMORY_BYTES)


def _line_pattern(text: str) -> Pattern:
    return Pattern(text, regex=True)


VALUE_PATTERN = RegularExpression(_value_pattern, "[a-z]+")
LINE_PATTERN = RegularExpression(_line_pattern, "listening on port [0-9]+", " for a line")
