import pytest

from store import metrics
from store.database import Database
from store.metrics import COARSE_MS, FINE_MS, MetricSample

DAY_MS = 86_400_000
T0 = 1_780_000_000_000 // COARSE_MS * COARSE_MS


def fill(db: Database, start: int, count: int, *, step: int = FINE_MS) -> None:
    with db.transaction():
        for number in range(count):
            at = start + number * step
            metrics.add(db, MetricSample(at, cpu=float(number), memory_used=number * 10))


def test_five_second_samples(writer: Database, reader: Database) -> None:
    """Five-second samples are read as stored, without the values that were not measured."""
    assert metrics.newest(reader) is None
    fill(writer, T0 + 123, 3)
    samples = metrics.samples(reader, T0, T0 + COARSE_MS, FINE_MS)
    assert [(sample.at - T0, sample.cpu, sample.memory_used, sample.load) for sample in samples] == [
        (0, 0.0, 0, None),
        (5000, 1.0, 10, None),
        (10000, 2.0, 20, None),
    ]
    assert metrics.newest(reader) == samples[-1]


def test_means_over_a_step(writer: Database, reader: Database) -> None:
    """A longer step has means; the end of the span is exclusive."""
    fill(writer, T0, 12)
    samples = metrics.samples(reader, T0, T0 + 10 * FINE_MS, 6 * FINE_MS)
    assert [(sample.cpu, sample.memory_used) for sample in samples] == [(2.5, 25), (7.5, 75)]


def test_minutes(writer: Database, reader: Database) -> None:
    """A minute is stored with its mean after it has passed; one split by a restart is stored later, once."""

    def minutes() -> list[tuple[int, float | None]]:
        samples = metrics.samples(reader, T0, T0 + DAY_MS, COARSE_MS)
        return [((sample.at - T0) // COARSE_MS, sample.cpu) for sample in samples]

    fill(writer, T0, 12)
    assert minutes() == []
    fill(writer, T0 + COARSE_MS, 2)
    assert minutes() == [(0, 5.5)]
    fill(writer, T0 + COARSE_MS + 6 * FINE_MS, 6)
    assert minutes() == [(0, 5.5)]
    fill(writer, T0 + 10 * COARSE_MS, 2)
    assert minutes() == [(0, 5.5), (1, 2.0)]
    writer.execute("UPDATE samples SET cpu = 99 WHERE width = ?", [FINE_MS])
    fill(writer, T0 + 11 * COARSE_MS, 1)
    assert minutes() == [(0, 5.5), (1, 2.0), (10, 99.0)]


def test_ten_minutes(writer: Database, reader: Database) -> None:
    """Ten-minute samples are means of minutes and stored once, when over; a long step is answered from them."""
    start = T0 // (10 * COARSE_MS) * 10 * COARSE_MS
    fill(writer, start, 22, step=COARSE_MS)
    for step, cpu in ((10 * COARSE_MS, [4.5, 14.5]), (20 * COARSE_MS, [9.5])):
        samples = metrics.samples(reader, start, start + DAY_MS, step)
        assert [(sample.at - start, sample.cpu) for sample in samples] == [
            (i * step, value) for i, value in enumerate(cpu)
        ]


def test_repeated_interval(writer: Database, reader: Database) -> None:
    """After the clock steps back, new samples replace the samples of the same times."""
    fill(writer, T0, 3)
    metrics.add(writer, MetricSample(T0 + FINE_MS, cpu=99.0))
    assert [sample.cpu for sample in metrics.samples(reader, T0, T0 + COARSE_MS, FINE_MS)] == [0.0, 99.0, 2.0]


def test_kept_spans(writer: Database, reader: Database) -> None:
    """A day of samples and two weeks of minutes are kept, but no samples of a clock that ran ahead."""
    fill(writer, T0, 16 * 24, step=3_600_000)
    fill(writer, T0 + 16 * DAY_MS + 3_600_000, 2)
    fill(writer, T0 + 16 * DAY_MS + 7_200_000, 2)
    metrics.add(writer, MetricSample(T0 + 16 * DAY_MS))
    rows: dict[int, int] = dict(writer.rows("SELECT width, count(*) FROM samples GROUP BY width"))
    assert rows[FINE_MS] <= 26
    assert 13 * 24 <= rows[COARSE_MS] <= 14 * 24 + 1
    assert 13 * 24 <= rows[10 * COARSE_MS] <= 14 * 24 + 1
    newest = metrics.newest(reader)
    assert newest is not None
    assert newest.at == T0 + 16 * DAY_MS


@pytest.mark.parametrize(
    ("ago_ms", "span_ms", "step", "expected"),
    [
        (3_600_000, 3_600_000, None, FINE_MS),
        (3_600_000, 3_600_000, 1, FINE_MS),
        (3_600_000, 3_600_000, 7_000, 2 * FINE_MS),
        (3_600_000, 3_600_000, 90_000, 2 * COARSE_MS),
        (DAY_MS, DAY_MS, None, COARSE_MS),
        (2 * DAY_MS, 3_600_000, None, COARSE_MS),
        (2 * DAY_MS, 3_600_000, 1, COARSE_MS),
        (14 * DAY_MS, 14 * DAY_MS, None, 20 * COARSE_MS),
    ],
)
def test_resolution(ago_ms: int, span_ms: int, step: int | None, expected: int) -> None:
    """The resolution is that of the stored samples, not finer than requested, and never has too many points."""
    now = T0 + 30 * DAY_MS
    step_found = metrics.resolution(now - ago_ms, now - ago_ms + span_ms, now, step)
    assert step_found == expected
    assert span_ms / step_found <= 2000
