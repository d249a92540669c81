from supervisor.ipc import run_token

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_token_names_its_run() -> None:
    """A token identifies its run to the daemon that made it; another key or a changed token fails."""
    token = run_token.make("key", RUN)
    assert run_token.run_of("key", token) == RUN
    assert run_token.run_of("another key", token) is None
    other = token.replace(RUN, "01ARZ3NDEKTSV4RRFFQ69G5FAW")
    for wrong in (other, token[:-1], token + "A", token.lower(), "", f"rr_{RUN}_" + "A" * 43):
        assert run_token.run_of("key", wrong) is None


def test_no_key() -> None:
    """A daemon that has no key accepts no token, not even one made without a key."""
    assert run_token.run_of("", run_token.make("", RUN)) is None


def test_permissions() -> None:
    """A permission applies to its verb and to the names that its glob matches."""
    may = ("restart:web", "run:report-*")
    assert run_token.permits(may, "restart", "web")
    assert run_token.permits(may, "run", "report-daily")
    assert not run_token.permits(may, "stop", "web")
    assert not run_token.permits(may, "restart", "web2")
    assert not run_token.permits(may, "run", "a-report-daily")
    assert run_token.concerns(may, "web")
    assert run_token.concerns(may, "report-")
    assert not run_token.concerns(may, "backup")
