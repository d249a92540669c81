"""``OnCalendar`` of systemd.time(7) as cron expressions, as far as those can say it."""

import re

_WORDS = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 1",
    "monthly": "0 0 1 * *",
    "quarterly": "0 0 1 1,4,7,10 *",
    "semiannually": "0 0 1 1,7 *",
    "yearly": "0 0 1 1 *",
    "annually": "0 0 1 1 *",
}
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EVENT = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}[A-Za-z,.\-]*)\s*)?"
    r"(?:(?P<year>\*|\d{4})-(?P<month>[\d*,./]+)-(?P<day>[\d*,./]+)\s*)?"
    r"(?:(?P<hour>[\d*,./]+):(?P<minute>[\d*,./]+)(?::(?P<second>[\d*,./]+))?)?"
)
_PART = re.compile(r"(?:\*|\d+)(?:\.\.\d+)?(?:/\d+)?")
_SECOND_RANGE = re.compile(r"(\d+)/(\d+)")
_HIGHEST = {"minute": 59, "hour": 23, "day": 31, "month": 12, "second": 59}
_DAYS_OF_WEEK = 7
_NONE = "no cron expression means"


def to_cron(text: str) -> str:
    """The cron expression that means the same.

    Raises:
        ValueError: cron cannot say it, or it is none.
    """
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    found = _EVENT.fullmatch(text)
    if not text or found is None or (found["year"] or "*") != "*":
        raise ValueError(f"{_NONE} {text}")
    at_midnight = found["hour"] is None
    parts = {
        name: "0" if at_midnight and name in ("minute", "hour") else _field(name, found[name] or "*")
        for name in ("minute", "hour", "day", "month")
    }
    week = _week(found["days"]) if found["days"] else "*"
    if week != "*" and parts["day"] != "*":  # here either is enough, there both are needed
        raise ValueError(f"{_NONE} {text}")
    second = _field("second", found["second"] or "0")
    return " ".join(([] if second == "0" else [second]) + [*parts.values(), week])


def _field(name: str, text: str) -> str:
    parts = []
    for part in text.split(","):
        if not _PART.fullmatch(part):
            raise ValueError(f"{_NONE} {text}")
        part = part.replace("..", "-")
        # 0/15 begins there and goes on to the end.
        part = (
            _SECOND_RANGE.sub(lambda one: f"{int(one[1])}-{_HIGHEST[name]}/{one[2]}", part) if "-" not in part else part
        )
        parts.append(re.sub(r"\d+", lambda one: str(int(one[0])), part))
    return ",".join(parts)


def _week(text: str) -> str:
    found: list[int] = []
    for part in text.strip(",").split(","):
        first, _, last = part.replace("..", "-").partition("-")
        begin = _day(first)
        end = _day(last) if last else begin
        found += [(begin + n) % _DAYS_OF_WEEK for n in range((end - begin) % _DAYS_OF_WEEK + 1)]
    return ",".join(map(str, sorted(set(found)))) if len(set(found)) < _DAYS_OF_WEEK else "*"


def _day(text: str) -> int:
    if text[:3].lower() not in _DAYS:
        raise ValueError(f"{_NONE} {text}")
    return _DAYS.index(text[:3].lower())
