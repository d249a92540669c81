import subprocess
import sys

from tests.store.databases import on_sqlite
from tests.support.paths import ROOT

PROGRAM = """
import gevent.monkey
gevent.monkey.patch_all()
import sys, threading, gevent
from gevent.threadpool import ThreadPool
from store.database import open_reader, open_writer
from store.errors import QueryTimeout
from store.runs.ids import new_ulid
from store.daemon_values import get_meta, set_meta
from store.runs.filter import RunFilter
from store.runs.run_pages import list_runs

writer = open_writer(sys.argv[1])
for n in range(100):
    set_meta(writer, f"k{n}", n)
reader = open_reader(sys.argv[1], limit_s=None)
pool = ThreadPool(2)
ids, beats, stop = [], [], []

def request(n):
    assert pool.apply(get_meta, (reader, f"k{n % 100}")) == n % 100      # by peewee, in a real thread
    assert get_meta(reader, f"k{n % 100}") == n % 100                    # by peewee, in this greenlet
    assert pool.apply(lambda: list_runs(reader, RunFilter(), now_ms=0)) == ([], 0)
    ids.append(new_ulid())
    ids.append(pool.apply(new_ulid))

def beat():
    while not stop:
        beats.append(1)
        gevent.sleep(0.001)

heart = gevent.spawn(beat)
gevent.joinall([gevent.spawn(request, n) for n in range(1000)], raise_error=True)
assert len(set(ids)) == 2000
assert 1 <= len(reader._idle) <= 3, len(reader._idle)     # two threads and the greenlets' own, not one per greenlet

endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
before = len(beats)
try:
    pool.apply(open_reader(sys.argv[1]).rows, (endless,))
except QueryTimeout:
    pass
else:
    raise AssertionError("not stopped")
assert len(beats) > before                                # the hub went on while the query ran
try:
    pool.apply(set_meta, (reader, "k", 1))
except Exception as err:
    assert type(err).__name__ == "ReadOnly", err
else:
    raise AssertionError("written")
stop.append(1)
heart.join()
pool.join()
reader.close()
writer.close()
print("fine")
"""


@on_sqlite
def test_greenlets_share_connections(path: str) -> None:
    """Under gevent, greenlets and pool threads share a few connections, and a slow query blocks no greenlet."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.stdout == "fine\n", done.stderr
