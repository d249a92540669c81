import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.ipc.messages import Exited
from supervisor.schedule.overlap import Admission, decide
from supervisor.scheduler.control.rate_limit import LoginLimit, RateLimit
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.runs.end_reason import Verdict, verdict_of
from supervisor.scheduler.runs.retry import delay_ms, tried_again
from tests.scheduler.fake_clock import START_MS, FakeClock

OK = (0,)


def exited(status: int | None, cause: str | None = None) -> Exited:
    return Exited(run="R", status=status, cause=cause, ended_at=1)


@pytest.mark.parametrize(
    ("status", "cause", "codes", "expected"),
    [
        (0, None, OK, Verdict("succeeded", 0)),
        (3 << 8, None, OK, Verdict("failed", 3)),
        (3 << 8, None, (0, 3), Verdict("succeeded", 3)),
        (0, None, (1,), Verdict("failed", 0)),
        (signal.SIGSEGV | 0x80, None, OK, Verdict("failed", 139, signal.SIGSEGV, True)),
        (signal.SIGTERM, "stop", OK, Verdict("stopped", 143, signal.SIGTERM)),
        (0, "stop", OK, Verdict("stopped", 0)),
        (signal.SIGKILL, "timeout", OK, Verdict("timeout", 137, signal.SIGKILL)),
        (5 << 8, "timeout", OK, Verdict("timeout", 5)),
        (signal.SIGTERM, "shutdown", OK, Verdict("daemon_stopped", 143, signal.SIGTERM)),
        (None, "start_failed", OK, Verdict("start_failed", -1)),
        (None, "stop", OK, Verdict("stopped", -1)),
        (126 << 8, "start_failed", OK, Verdict("start_failed", -1)),
    ],
)
def test_verdict(status: int | None, cause: str | None, codes: tuple[int, ...], expected: Verdict) -> None:
    """The end reason and the exit code follow from the wait status and the cause of a stop."""
    assert verdict_of(exited(status, cause), codes) == expected


@pytest.mark.parametrize("reason", ["x cannot be executed", "could not start: x cannot be executed"])
def test_start_failure_reason(reason: str) -> None:
    """The verdict has the reason of a failed start, because the log that has it too may not exist."""
    verdict = verdict_of(Exited(run="R", status=None, cause="start_failed", reason=reason, ended_at=1), OK)
    assert verdict.text == "could not start: x cannot be executed"


def test_verdict_in_words() -> None:
    """The text of a verdict says in words how a run ended, without the names of end reasons."""
    assert verdict_of(exited(signal.SIGTERM, "timeout"), OK).text == "timed out (SIGTERM)"
    assert verdict_of(exited(3 << 8, "timeout"), OK).text == "timed out (exit code 3)"
    assert verdict_of(exited(signal.SIGTERM, "overflow"), OK).text == "stopped because of too much output (SIGTERM)"
    assert verdict_of(exited(0, "shutdown"), OK).text == "stopped with the daemon"
    assert verdict_of(exited(0, "stop"), OK).text == "stopped"
    assert verdict_of(exited(2 << 8), OK).text == "failed with exit code 2"


def test_signal_names() -> None:
    """Every signal that can end a process has a text, even real-time signals without a name."""
    texts = [verdict_of(exited(number), OK).text for number in range(1, 65)]
    assert texts[14] == "failed by SIGTERM"
    assert texts[34] == "failed by signal 35"


@given(kind=st.sampled_from(["constant", "linear", "exponential"]), attempt=st.integers(1, 10_000))
def test_delays_grow_and_are_capped(kind: str, attempt: int) -> None:
    """A delay never shrinks with the attempts, falls below its base or exceeds its maximum."""
    delay = delay_ms(kind, 100, 60_000, attempt)
    assert 100 <= delay <= delay_ms(kind, 100, 60_000, attempt + 1) <= 60_000


@pytest.mark.parametrize(
    ("retry_on", "reason", "code", "again"),
    [
        (("failed", "timeout"), "failed", 1, True),
        (("failed", "timeout"), "crashed", -2, False),
        ((75, "timeout"), "failed", 75, True),
        ((75, "timeout"), "failed", 1, False),
        ((75, "timeout"), "timeout", 143, True),
        ((143,), "timeout", 143, False),
        ((0,), "succeeded", 0, False),
        (("failed",), "stopped", 1, False),
    ],
)
def test_retry_on(retry_on: tuple[str | int, ...], reason: str, code: int, again: bool) -> None:
    """Listed end reasons and exit codes of failures are retried; a success or a requested stop never is."""
    assert tried_again(retry_on, reason, code) is again


def test_delays_by_kind() -> None:
    """Delays are constant, linear or exponential, up to the maximum; a delay of zero stays zero."""
    assert [delay_ms("constant", 100, 10_000, n) for n in (1, 2, 3)] == [100, 100, 100]
    assert [delay_ms("linear", 100, 10_000, n) for n in (1, 2, 3)] == [100, 200, 300]
    assert [delay_ms("exponential", 100, 10_000, n) for n in (1, 2, 3, 20)] == [100, 200, 400, 10_000]
    assert delay_ms("exponential", 0, 10_000, 7) == 0
    assert [delay_ms("exponential", 20_000, 10_000, n) for n in (1, 2)] == [20_000, 20_000]


@pytest.mark.parametrize(
    ("policy", "running", "queued", "expected"),
    [
        ("queue", 0, 0, Admission.START),
        ("queue", 1, 0, Admission.QUEUE),
        ("queue", 0, 1, Admission.QUEUE),
        ("queue", 1, 2, Admission.FULL),
        ("skip", 0, 0, Admission.START),
        ("skip", 1, 0, Admission.SKIP),
        ("terminate", 1, 0, Admission.TERMINATE),
    ],
)
def test_overlap(policy: str, running: int, queued: int, expected: Admission) -> None:
    """A run takes a free slot, but never before waiting runs; otherwise the policy decides."""
    assert decide(policy, running=running, queued=queued, max_concurrent=1, queue_max=2) is expected


def test_rate_limit() -> None:
    """A client must wait after ten wrong passwords within a minute, and other clients need not."""
    now = [1000.0]
    limit = RateLimit(lambda: now[0], 10)
    for _ in range(10):
        assert limit.blocked_s("a") == 0
        limit.count("a")
    assert limit.blocked_s("a") == 61
    assert limit.blocked_s("b") == 0
    now[0] += 60
    assert limit.blocked_s("a") == 0


def test_login_limit_spares_known_clients() -> None:
    """Strangers with many addresses are blocked together after 100 wrong passwords of one account.

    A client that has sent the right password keeps its own limit, and other accounts are not affected.
    """
    clock = FakeClock()
    limit = LoginLimit(Loop(clock), "key", {})
    limit.succeeded("home", "alice")
    for number in range(100):
        assert limit.blocked_s(f"10.0.0.{number}", "alice") == 0
        limit.failed(f"10.0.0.{number}", "alice")
    assert limit.blocked_s("new", "alice") == 61
    assert limit.blocked_s("new", "bob") == limit.blocked_s("home", "alice") == 0
    for _ in range(10):
        limit.failed("home", "alice")
    assert limit.blocked_s("home", "alice") == limit.blocked_s("home", "bob") == 61
    clock.advance(60)
    assert limit.blocked_s("home", "alice") == limit.blocked_s("new", "alice") == 0


def test_known_clients_are_remembered_for_30_days() -> None:
    """A client stays known for 30 days after its last right password, also in the next scheduler with the same key."""
    day_s = 86_400
    clock = FakeClock()
    first = LoginLimit(Loop(clock), "key", {})
    assert first.succeeded("home", "alice")
    clock.advance(day_s / 2)
    assert not first.succeeded("home", "alice")  # it is stored at most once a day
    clock.advance(day_s / 2)
    assert first.succeeded("home", "alice")
    assert "home" not in str(first.familiar)
    assert "alice" not in str(first.familiar)
    for days, key, known in ((29.9, "key", True), (29.9, "other", False), (30, "key", False)):
        clock = FakeClock(START_MS + day_s * 1000)
        clock.advance(days * day_s)
        limit = LoginLimit(Loop(clock), key, first.familiar)
        for number in range(100):
            limit.failed(f"10.0.0.{number}", "alice")
        assert (limit.blocked_s("home", "alice") == 0) is known


def test_memory_of_known_clients_is_bounded() -> None:
    """The 1,000 newest clients of the last 30 days are known."""
    clock = FakeClock()
    limit = LoginLimit(Loop(clock), "key", {})
    for number in range(1010):
        limit.succeeded(str(number), "alice")
        clock.advance(1)
    assert len(limit.familiar) == 1000
    assert not limit.succeeded("10", "alice")
    assert limit.succeeded("9", "alice")
    clock.advance(31 * 86_400)
    assert limit.succeeded("9", "alice")
    assert len(limit.familiar) == 1


def test_changed_rate() -> None:
    """Many at once count up to the rate; a smaller rate applies at once, and 0 means no limit."""
    now = [1000.0]
    limit = RateLimit(lambda: now[0], 3)
    limit.count("a", 50)
    now[0] += 30
    assert limit.blocked_s("a") == 31
    limit.rate = 0
    assert limit.blocked_s("a") == 0
    limit.rate = 4
    assert limit.blocked_s("a") == 0
    limit.count("a")
    assert limit.blocked_s("a") == 31
    limit.rate = 1
    assert limit.blocked_s("a") == 61


def test_client_memory_is_bounded() -> None:
    """A flood of addresses replaces the oldest ones and uses no further memory."""
    limit = RateLimit(lambda: 0.0, 10)
    for number in range(10_050):
        limit.count(str(number))
    assert len(limit._times) == 10_000
