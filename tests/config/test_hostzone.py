"""Time zones of the host."""

from pathlib import Path

import pytest

from supervisor.config.hostzone import host_zone, is_zone


@pytest.mark.parametrize("name", ["UTC", "Europe/Prague", "America/New_York"])
def test_iana_names_are_zones(name: str) -> None:
    """Names of the IANA database are valid."""
    assert is_zone(name)


@pytest.mark.parametrize("name", ["", "Europe", "../etc/passwd", "/etc/localtime", "CET-1CEST", "No/Where", "a\0b"])
def test_other_names_are_none(name: str) -> None:
    """Directories, paths, rules and nonsense are not."""
    assert not is_zone(name)


def test_the_host_zone_is_found_in_order(tmp_path: Path) -> None:
    """TZ, else the link, else the file, else UTC."""
    link, name_file = tmp_path / "localtime", tmp_path / "timezone"
    link.symlink_to("/usr/share/zoneinfo/Europe/Prague")
    name_file.write_text("Asia/Tokyo\n")
    missing = str(tmp_path / "missing")

    def found(tz: str | None, link: str, name_file: str) -> str:
        return host_zone({} if tz is None else {"TZ": tz}, link, name_file)

    assert found("America/New_York", str(link), str(name_file)) == "America/New_York"
    assert found(":Asia/Kolkata", str(link), str(name_file)) == "Asia/Kolkata"
    assert found("CET-1CEST", str(link), str(name_file)) == "Europe/Prague"
    assert found(None, str(link), str(name_file)) == "Europe/Prague"
    assert found(None, missing, str(name_file)) == "Asia/Tokyo"
    assert found(None, missing, missing) == "UTC"
