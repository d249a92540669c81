"""Logs of runs: pages, and the whole text."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from api import schemas, sse
from api.context import Context
from api.errors import base_url
from api.operation import Call, Content, Operation, json_of
from api.params import choice, integer
from api.resources.runs import the_run
from api.stream import read_page, unreadable
from logring.errors import LogError
from logring.layout import STDERR, STDOUT, STREAM_NAMES
from logring.reader import Head, LogReader
from store.runs import Run

_PAGE_BYTES = 1 << 20
_PAGE_LINES = 10_000
_RAW_BYTES = 256 * 1024

_STREAM = choice("stream", "Only lines of this stream.", STREAM_NAMES)


def _open(context: Context, run: Run) -> tuple[LogReader, Head]:
    """The run's log.

    Raises:
        ApiError: 500 it cannot be read.
    """

    def opened() -> tuple[LogReader, Head]:
        reader = LogReader(*context.hub.paths(run))
        return reader, reader.head()

    try:
        return context.files(opened)
    except (LogError, OSError) as err:
        raise unreadable(run.id, err) from err


class _Body:
    """A response that is made while it is sent; closes the log in the end."""

    def __init__(self, parts: Iterable[bytes], reader: LogReader) -> None:
        self._parts = parts
        self._reader = reader

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        self._reader.close()


def get_log(context: Context, call: Call) -> None:
    """A page of lines. Most fit into one read; what does not is sent as it is read, so that none is too large."""
    run = the_run(context, call.path["runId"])
    reader, head = _open(context, run)
    lines = max(head.lines, run.lines if run.status == "ended" else 0)
    first = head.first_available if head.lines else lines
    anchor: int = call.query["from"]
    start = min(max(first, anchor if anchor >= 0 else lines + anchor), head.lines)
    document = schemas.LogPage(
        first_available=first,
        total_lines=lines,
        truncated=first > 0 or head.dropped > 0,
        finalized=head.sealed or run.status == "ended",
        lines=[],
    )
    document.schema_link = f"{base_url(call.req.env)}/schemas/LogPage.json"
    parts = _page_parts(context, reader, document, start, head.lines, call.query)
    # The first part is read before the answer begins, so that a log that cannot be read is answered as that.
    try:
        first_part = next(parts)
        second_part = next(parts)
    except (LogError, OSError) as err:
        reader.close()
        raise unreadable(run.id, err) from err
    call.resp.content_type = "application/json"
    if second_part == _END:
        reader.close()
        call.resp.data = first_part + _END
        return

    def rest() -> Iterator[bytes]:
        yield first_part
        yield second_part
        yield from parts

    call.resp.stream = _Body(rest(), reader)


_END = b"]}"


def _page_parts(
    context: Context, reader: LogReader, document: schemas.LogPage, start: int, end: int, query: dict[str, Any]
) -> Iterator[bytes]:
    wanted = STREAM_NAMES.index(query["stream"]) if query["stream"] else None
    left: int = query["limit"]
    part = msgspec.json.encode(document).removesuffix(_END)
    separator = b""
    position = start
    while left and position < end:
        position, records = context.files(_lines, reader, position, min(end - position, _PAGE_LINES), wanted, left)
        left -= len(records)
        if records:
            part += separator + msgspec.json.encode(records)[1:-1]
            separator = b","
        if part:
            yield part
            part = b""
    if part:
        yield part
    yield _END


def _lines(
    reader: LogReader, position: int, limit: int, stream: int | None, most: int
) -> tuple[int, list[schemas.Line]]:
    """Some lines from `position` on, at most `most`, and where to go on."""
    if stream is None:
        limit = min(limit, most)
    page = read_page(reader, position, limit, _PAGE_BYTES)
    found = [record for record in page.lines if stream is None or record.stream == stream]
    following = page.next
    if len(found) > most:
        following = found[most].n
        found = found[:most]
    return max(following, position + 1), [sse.line(record) for record in found]


def get_raw_log(context: Context, call: Call) -> None:
    """The stored bytes of stdout and stderr in the order of their arrival."""
    run = the_run(context, call.path["runId"])
    reader, _head = _open(context, run)
    stream = call.query["stream"]
    streams = (STDOUT, STDERR) if stream is None else (STREAM_NAMES.index(stream),)
    chunks = reader.raw(streams)
    try:
        first = context.files(_gather, chunks)
    except (LogError, OSError) as err:
        reader.close()
        raise unreadable(run.id, err) from err
    call.resp.content_type = "text/plain; charset=utf-8"
    name = "-".join(part for part in (run.task_name.replace(":", "_"), run.id, stream) if part)
    call.resp.set_header("Content-Disposition", f'attachment; filename="{name}.log"')
    call.resp.set_header("X-Accel-Buffering", "no")

    def parts() -> Iterator[bytes]:
        data = first
        while data:
            yield data
            data = context.files(_gather, chunks)

    call.resp.stream = _Body(parts(), reader)


def _gather(chunks: Iterator[bytes]) -> bytes:
    """The next pieces, together large enough to be worth a write; empty at the end."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= _RAW_BYTES:
            break
    return b"".join(parts)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/{runId}/log",
        id="getRunLog",
        summary="Get a page of log lines.",
        handler=get_log,
        query=(
            integer("from", "Line to begin with; 0 is the first, a negative number counts from the end.", -1000),
            integer("limit", "Most lines to return.", 1000, minimum=1, maximum=10_000),
            _STREAM,
        ),
        answers={200: json_of(schemas.LogPage)},
        refusals=(404, 422),
        tag="logs",
    ),
    Operation(
        method="GET",
        path="/api/runs/{runId}/log/raw",
        id="getRunLogRaw",
        summary="Download the run's full log: stdout and stderr as they arrived.",
        handler=get_raw_log,
        query=(_STREAM,),
        answers={200: Content("text/plain", {"type": "string"})},
        refusals=(404, 422),
        tag="logs",
    ),
)
