import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import ulid

from store.runs import ids
from store.runs.ids import derived_ulid, is_ulid, new_ulid


def test_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is a ULID, as the interface describes it, with the given time."""
    monkeypatch.setattr(ids, "_state", ids._State())
    made = new_ulid(1_999_999_999_999)
    assert is_ulid(made)
    assert ulid.ULID.from_str(made).milliseconds == 1_999_999_999_999


def test_monotonic_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each id is greater than the one before, even after the clock stepped back."""
    monkeypatch.setattr(ids, "_state", ids._State())
    made = [new_ulid(ms) for ms in (5000, 5000, 4000, 5001, 1, 5001)]
    assert made == sorted(set(made))


def test_exhausted_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a millisecond has no ids left, an id of the next one is used."""
    state = ids._State()
    state.generator = ulid.ULIDGenerator(randomness=lambda _: b"\xff" * 10)
    monkeypatch.setattr(ids, "_state", state)
    first, second = new_ulid(7000), new_ulid(7000)
    assert first < second
    assert ulid.ULID.from_str(second).milliseconds == 7001


def test_derived_id() -> None:
    """An id derived from a text is reproducible, differs for another text, and has the time of its seed."""
    seed = new_ulid()
    made = derived_ulid(seed, "one")
    assert made == derived_ulid(seed, "one")
    assert is_ulid(made)
    assert made[:10] == seed[:10]
    assert made[10:] not in (seed[10:], derived_ulid(seed, "two")[10:])


def test_ids_of_threads() -> None:
    """Ids of several threads are distinct, and ascend within each thread."""
    start = threading.Barrier(4)

    def make(_: int) -> list[str]:
        start.wait()
        return [new_ulid() for _ in range(5000)]

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make, range(4)))
    assert all(part == sorted(part) for part in made)
    assert len({made_id for part in made for made_id in part}) == 20_000


def test_ids_after_a_fork() -> None:
    """A child's id differs from its parent's, even if both create one within the same millisecond."""
    for _ in range(50):
        now = ulid.ULID.from_str(new_ulid()).milliseconds
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, new_ulid(now).encode())
            os._exit(0)
        mine = new_ulid(now)
        os.close(write)
        theirs = os.read(read, 26).decode()
        os.close(read)
        assert os.waitpid(pid, 0)[1] == 0
        assert is_ulid(theirs)
        assert theirs != mine


@pytest.mark.parametrize(
    "text",
    ["", "0" * 25, "0" * 27, "8" + "0" * 25, "i" * 26, "0" * 25 + "U", "0" * 25 + "a", "0" * 25 + "\n", "\u0660" * 26],
)
def test_invalid_ids(text: str) -> None:
    """Other lengths, letters outside the alphabet, lower case and more than 128 bits are not valid ids."""
    assert not is_ulid(text)
