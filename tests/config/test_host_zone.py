"""Time zones of the host."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from supervisor.config.host_zone import host_zone
from supervisor.config.problems import InvalidValue
from supervisor.host.zones import is_zone, zone_named
from tests.config.test_load import Load, Problems

RULE = "CET-1CEST,M3.5.0,M10.5.0/3"


@pytest.mark.parametrize("name", ["UTC", "Europe/Prague", "EST5EDT", RULE, "UTC0", "<+0330>-3:30"])
def test_valid_zones(name: str) -> None:
    """Names of the IANA database are valid, and so are rules that say when clocks change."""
    assert is_zone(name)


NONE = ("", "Europe", "../etc/passwd", "/etc/localtime", "No/Where", "a\0b")
NO_RULES = ("CET-1CEST", f"{RULE},M1.1.0", f"{RULE}\n", "CET-1CEST,M13.1.0,M1.1.0", "ABC-24", "A-1")


@pytest.mark.parametrize("name", [*NONE, *NO_RULES])
def test_invalid_zones(name: str) -> None:
    """Directories, paths, incomplete rules and nonsense are not zones."""
    assert not is_zone(name)


def test_rule_offsets() -> None:
    """A rule gives the offsets of the zone with that rule, hour by hour."""
    rule, prague = zone_named(RULE), ZoneInfo("Europe/Prague")
    at = datetime(2025, 1, 1, tzinfo=UTC)
    for hour in range(3 * 8766):
        instant = at + timedelta(hours=hour)
        assert instant.astimezone(rule).replace(tzinfo=None) == instant.astimezone(prague).replace(tzinfo=None)


def test_host_zone_search_order(tmp_path: Path) -> None:
    """The host's zone is TZ as the C library reads it, else the link, else the file, else UTC."""
    link, name_file = tmp_path / "localtime", tmp_path / "timezone"
    link.symlink_to("/usr/share/zoneinfo/Europe/Prague")
    name_file.write_text("Asia/Tokyo\n")
    missing = str(tmp_path / "missing")

    def zone_of(tz: str | None, link: str, name_file: str) -> str:
        return host_zone({} if tz is None else {"TZ": tz}, link, name_file)

    assert zone_of("America/New_York", str(link), str(name_file)) == "America/New_York"
    assert zone_of(":Asia/Kolkata", str(link), str(name_file)) == "Asia/Kolkata"
    assert zone_of("/usr/share/zoneinfo/Asia/Kolkata", str(link), str(name_file)) == "Asia/Kolkata"
    assert zone_of(f":{link}", missing, str(name_file)) == "Europe/Prague"
    assert zone_of(f":{missing}", missing, str(name_file)) == "Asia/Tokyo"
    assert zone_of(RULE, str(link), str(name_file)) == RULE
    assert zone_of("", str(link), str(name_file)) == zone_of(":", str(link), str(name_file)) == "UTC"
    assert zone_of(None, str(link), str(name_file)) == "Europe/Prague"
    assert zone_of(None, missing, str(name_file)) == "Asia/Tokyo"
    assert zone_of(None, missing, missing) == "UTC"
    for tz in ("CET-1CEST", "No/Where", f":{missing}"):
        with pytest.raises(InvalidValue):
            zone_of(tz, str(link), str(name_file))


def test_invalid_tz(config: Load, problems: Problems) -> None:
    """An unknown TZ is an error with a remedy, unless a zone is configured. Schedules never follow another zone."""
    (problem,) = problems("[daemon]\n", TZ="CET-1CEST")
    assert (problem.key, problem.message) == (
        "daemon.timezone",
        'cannot determine the host\'s: the variable TZ is "CET-1CEST", which is not a time zone',
    )
    assert problem.remedy is not None
    assert config('[daemon]\ntimezone = "Asia/Tokyo"\n', TZ="CET-1CEST").daemon.timezone == "Asia/Tokyo"
    task = config('[tasks.a]\nrun = "true"\ncron = "0 3 * * *"\n', TZ=RULE).tasks["a"]
    assert task.timezone == RULE


@pytest.mark.skipif(not Path("/usr/share/zoneinfo/Europe/Prague").is_file(), reason="install tzdata")
def test_copied_zone(tmp_path: Path) -> None:
    """A copy in the place of the link is the zone of its content, as for the C library, whatever the name file has."""
    copy, name_file = tmp_path / "localtime", tmp_path / "timezone"
    data = Path("/usr/share/zoneinfo")
    name_file.write_text("Asia/Tokyo\n")
    copy.write_bytes((data / "Asia/Tokyo").read_bytes())
    assert host_zone({}, str(copy), str(name_file)) == "Asia/Tokyo"
    copy.unlink()
    copy.write_bytes((data / "America/New_York").read_bytes())
    assert ZoneInfo(host_zone({}, str(copy), str(name_file))).utcoffset(datetime(2026, 7, 1)) == timedelta(hours=-4)  # noqa: DTZ001 - a local time
    copy.unlink()
    copy.write_bytes((data / "Europe/Prague").read_bytes() + b"\n")  # as in another release of the data
    assert host_zone({}, str(copy), str(name_file)) == RULE


def test_unreadable_zone_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone that vanishes or is unreadable during the comparison is skipped without an error."""
    data = tmp_path / "zoneinfo"
    (data / "Asia").mkdir(parents=True)
    content = b"TZif2 some zone"
    (data / "Asia/Aden").symlink_to(data / "nowhere")
    (data / "Asia/Tokyo").write_bytes(content)
    copy = tmp_path / "localtime"
    copy.write_bytes(content)
    monkeypatch.setattr("supervisor.config.host_zone.TZPATH", (str(data),))
    monkeypatch.setattr("supervisor.config.host_zone._zones_of_size", lambda *_: iter(["Asia/Aden", "Asia/Tokyo"]))
    assert host_zone({}, str(copy), str(tmp_path / "none")) == "Asia/Tokyo"


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"x" * 100_000])
def test_invalid_zone_file(tmp_path: Path, content: bytes) -> None:
    """If the file is not zone data, the file with the name is used."""
    copy, name_file = tmp_path / "localtime", tmp_path / "timezone"
    copy.write_bytes(content)
    name_file.write_text("Asia/Tokyo\n")
    assert host_zone({}, str(copy), str(name_file)) == "Asia/Tokyo"
