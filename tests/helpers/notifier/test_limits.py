"""Receivers that never answer."""

import asyncio

from supervisor.helpers.notifier.request_runner import RequestRunner
from supervisor.ipc.delivery_request import NotifierAnswer, PingRequest
from tests.support.receivers import Web, web_server
from tests.support.waiting import until


def test_no_answer() -> None:
    """No answer is a failure after a time limit, and others continue; the process ends when too many hang."""
    with web_server() as web:
        try:
            asyncio.run(_play(web))
        finally:
            web.hold.set()


async def _play(web: Web) -> None:
    messages: asyncio.Queue[NotifierAnswer] = asyncio.Queue()
    ended = asyncio.Event()
    work = RequestRunner(messages.put_nowait, ended.set, limit_s=0.05)
    web.hold.clear()
    for number in range(3):
        assert not ended.is_set()
        work.start(PingRequest(key=f"p{number}", url=f"http://127.0.0.1:{web.port}/{number}"))
        assert await messages.get() == NotifierAnswer("no answer within 0 s", key=f"p{number}")
    assert ended.is_set()
    await asyncio.to_thread(until, lambda: len(web.paths) == 3, "all three to be asked for")
    web.hold.set()
    work.start(PingRequest(key="last", url=f"http://127.0.0.1:{web.port}/last"))
    assert (await messages.get()).key == "last", "nothing is said twice"
    await asyncio.to_thread(until, lambda: "/last" in web.paths, "another one to be asked for")
