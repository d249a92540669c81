"""Refusals by inotify, and the times of retries."""

import errno

from supervisor.helpers.filewatcher.refusals import Refusals, Retries
from supervisor.ipc.file_bursts import FileWatcherLine, InotifyProblems
from supervisor.ipc.helper_messages import HelperMessage

NO_WATCH = OSError(errno.ENOSPC, "No space left on device")
NO_INSTANCE = OSError(errno.EMFILE, "Too many open files")
NO_MEMORY = OSError(errno.ENOMEM, "Cannot allocate memory")


def texts_of(sent: list[HelperMessage]) -> list[str]:
    return [message.text for message in sent if isinstance(message, FileWatcherLine)]


def test_each_cause_is_reported_once() -> None:
    """Further directories and attempts add no reports; each cause has its own remedy."""
    sent: list[HelperMessage] = []
    refusals = Refusals(sent.append)
    for _ in range(3):
        refusals.refused("a: /in", NO_WATCH)
        refusals.refused("a: /more", NO_WATCH)
        refusals.refused("b", NO_INSTANCE)
        refusals.refused("c: /in", NO_MEMORY)
        refusals.refused("d", OSError(errno.EPERM, "Operation not permitted"))
    so = ", so on_change lists directories every 10 s; "
    texts = [
        f"all inotify watches of the user are in use{so}raise fs.inotify.max_user_watches",
        f"all inotify instances of the user are in use{so}raise fs.inotify.max_user_instances",
        f"the kernel has no memory for inotify{so}free memory, or raise the memory limit of the daemon's cgroup",
        f"inotify cannot be used (Operation not permitted){so}check the kernel and its system call filter",
    ]
    assert texts_of(sent) == texts
    assert [message.problems for message in sent if isinstance(message, InotifyProblems)][-1] == sorted(texts)


def test_end_of_the_last_refusal_is_reported() -> None:
    """While one directory is refused, its problem stays; without a refusal nothing is reported."""
    sent: list[HelperMessage] = []
    refusals = Refusals(sent.append)
    refusals.ended("a: /in")
    assert sent == []
    refusals.refused("a: /in", NO_WATCH)
    refusals.refused("b: /in", NO_WATCH)
    del sent[:]
    refusals.ended("a: /in")
    assert sent == []
    refusals.ended("b: /in")
    assert sent == [
        FileWatcherLine("info", "inotify watches all directories of on_change again"),
        InotifyProblems([]),
    ]


def test_delay_doubles_up_to_five_minutes() -> None:
    """The delay starts again after a success, and checks between two attempts do not extend it."""
    retries = Retries()
    now_s, delays = 1000.0, []
    for _ in range(9):
        assert retries.due(now_s)
        retries.looked(now_s, refused=True)
        begin_s = now_s
        while not retries.due(now_s):
            now_s += 1
            if not retries.due(now_s):
                retries.looked(now_s, refused=True)
        delays.append(now_s - begin_s)
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    retries.looked(now_s, refused=False)
    assert not retries.due(now_s + 1000)
    retries.looked(now_s, refused=True)
    assert not retries.due(now_s + 4)
    assert retries.due(now_s + 5)
