"""A worker's side of the doorbell, against a writer that takes nothing for a while."""

import socket
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
from gevent import monkey
monkey.patch_all(os=False, signal=False, subprocess=False)
import sys
import gevent
from api.streams.ring_follower import DoorbellWatch

COUNT = 600  # more than fit into the buffer of a socket
hear, hearing = DoorbellWatch._receive, gevent.event.Event()
DoorbellWatch._receive = lambda bell, fd: (hearing.set(), hear(bell, fd))
bell = DoorbellWatch(sys.argv[1], "token", {})
names = [str(number) for number in range(COUNT)]
if sys.argv[2] == "again":
    bell._client.names.update(names)
    others = [gevent.spawn_later(0.2, bell.subscribe, "another")]
    bell._started = True
    listener = gevent.spawn(bell._listen)
else:
    bell.subscribe("first")
    gevent.sleep(0.2)
    others = [gevent.spawn(bell.subscribe, name) for name in names]
gevent.sleep(0.4)
print("ready", flush=True)
gevent.joinall(others, timeout=20, raise_error=True)
print(hearing.wait(20) and bell._client.connect() is not None, flush=True)
"""

_OF_ONE_RING = """
from gevent import monkey
monkey.patch_all(os=False, signal=False, subprocess=False)
import sys
from types import SimpleNamespace
import gevent
from api.streams.ring_follower import Feeds

path, folder = sys.argv[1], sys.argv[1].rpartition("/")[0]
boot = SimpleNamespace(root_bell=path, scheduler_bell=path, token="token", runtime_dir=folder, data_dir=folder)
feeds = Feeds(boot, None, None)
feeds._started = True
feeds.enter("first")
gevent.sleep(0.2)
others = [gevent.spawn(feeds.enter, str(number)) for number in range(600)]
one = gevent.spawn(feeds.enter, "one")
gevent.sleep(0.2)
other = gevent.spawn(lambda: feeds.leave(feeds.enter("one")))
gevent.sleep(0.2)
print("ready", flush=True)
gevent.joinall([*others, other], timeout=20, raise_error=True)
feed = one.get(timeout=20)
print(feeds._feeds.get("one") is feed, feed.users, flush=True)
feeds.leave(feed)
print("one" in feeds._feeds, flush=True)
"""


def _talk(tmp_path: Path, how: str, program: str = _PROGRAM) -> tuple[str, set[str]]:
    """The last words of the worker, and its subscriptions."""
    rung: set[str] = set()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "bell"))
        listener.listen()
        command = [sys.executable, "-c", program, str(tmp_path / "bell"), how]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            connection, _ = listener.accept()
            with connection:
                while packet := connection.recv(65536):
                    rung.update(line[1:] for line in packet.decode().split("\n"))
            return process.stdout.read(), rung


def test_many_concurrent_subscriptions(tmp_path: Path) -> None:
    """All subscribers wait until the writer reads their requests, and none fails."""
    printed, rung = _talk(tmp_path, "at once")
    assert printed == "True\n"
    assert rung.issuperset(map(str, range(600)))


def test_subscription_during_a_reconnect(tmp_path: Path) -> None:
    """A subscription succeeds while many are repeated for a new root that does not read yet."""
    printed, rung = _talk(tmp_path, "again")
    assert printed == "True\n"
    assert rung.issuperset([*map(str, range(600)), "another"])


def test_unsubscription_during_a_subscription(tmp_path: Path) -> None:
    """A subscriber that waits for the writer follows the ring even if another one unsubscribes meanwhile."""
    printed, rung = _talk(tmp_path, "one ring", _OF_ONE_RING)
    assert printed == "True 1\nFalse\n"
    assert "one" in rung
