"""Logs of runs: pages, and the whole text."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from api import schemas, sse
from api.conditional import RANGE, is_known, span
from api.context import Context
from api.errors import ApiError, base_url, invalid
from api.identity import Role
from api.operation import Call, Content, Operation, json_of
from api.params import choice, instant, integer
from api.rawlog import Layout, part
from api.resources.runs import the_run
from api.schemas import ErrorDetail
from api.stream import read_page, unreadable
from logring.errors import LogError
from logring.layout import STDERR, STDOUT, STREAM_NAMES
from logring.reader import Head, LogReader
from store.runs import Run

_PAGE_BYTES = 1 << 20
_PAGE_LINES = 10_000
_RAW_BYTES = 256 * 1024
_LAST = -1000

_TEXT = Content("text/plain", {"type": "string"})
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
    anchor: int | None = call.query["from"]
    at: int | None = call.query["at"]
    if anchor is not None and at is not None:
        raise invalid([ErrorDetail("query.at", "cannot be given together with from")])
    run = the_run(context, call.path["runId"])
    reader, head = _open(context, run)
    lines = max(head.lines, run.lines if run.status == "ended" else 0)
    first = head.first_available if head.lines else lines
    try:
        start = _from(_LAST if anchor is None else anchor, lines) if at is None else context.files(reader.line_at, at)
    except (LogError, OSError) as err:
        reader.close()
        raise unreadable(run.id, err) from err
    start = min(max(first, start), head.lines)
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


def _from(anchor: int, lines: int) -> int:
    return anchor if anchor >= 0 else lines + anchor


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
    reader, head = _open(context, run)
    stream = call.query["stream"]
    streams = (STDOUT, STDERR) if stream is None else (STREAM_NAMES.index(stream),)
    try:
        # What never printed has no log that could say that it is complete.
        complete = run.status == "ended" and (head.sealed or not head.lines)
        layout = context.layouts.of(run.id, reader, head, streams) if complete else None
        chunks = reader.raw(streams) if layout is None else _part(call, run, layout, reader, streams)
        first = b"" if chunks is None else context.files(_gather, chunks)
    except (LogError, OSError) as err:
        reader.close()
        raise unreadable(run.id, err) from err
    except ApiError:
        reader.close()
        raise
    if chunks is None:
        reader.close()
        return
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


def _part(call: Call, run: Run, layout: Layout, reader: LogReader, streams: tuple[int, ...]) -> Iterator[bytes] | None:
    """The bytes that a request wants of a log of known size; None: the client has them.

    Raises:
        ApiError: 416 there are no such bytes.
    """
    tag = f'"{run.id}-{layout.size}-{"".join(map(str, streams))}"'
    call.resp.set_header("ETag", tag)
    call.resp.set_header("Accept-Ranges", "bytes")
    if is_known(call.req, tag):
        call.resp.status = 304
        return None
    wanted = span(call.req, layout.size, tag)
    begin, end = wanted or (0, layout.size)
    if wanted is not None:
        call.resp.status = 206
        call.resp.set_header("Content-Range", f"bytes {begin}-{end - 1}/{layout.size}")
    call.resp.content_length = end - begin
    return part(reader, streams, layout, begin, end)


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
        role=Role.VIEWER,
        summary="Get a page of log lines.",
        handler=get_log,
        query=(
            # That it was not given is told from its default by `at`.
            replace(
                integer("from", "Line to begin with; 0 is the first, a negative number counts from the end.", _LAST),
                default=None,
            ),
            instant("at", "Begin with the first line read at this time or later; not together with `from`.", up=True),
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
        role=Role.VIEWER,
        summary="Download the run's full log: stdout and stderr as they arrived.",
        handler=get_raw_log,
        query=(_STREAM,),
        headers=RANGE,
        answers={200: _TEXT, 206: _TEXT, 304: None},
        refusals=(404, 416, 422),
        tag="logs",
    ),
)
