"""Handlers for logs of runs: pages, downloads, and the history of a redrawn line."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from api.auth.identity import Role
from api.errors import ApiError, base_url
from api.operations.conditional import RANGE, ByteRange, is_known, span
from api.operations.operation import Call, Content, Operation, json_of
from api.operations.parameters import INT64_MAX, choice, instant, integer
from api.resources.runs.runs import the_run
from api.schemas import records as schemas
from api.streams import sse_encoding
from api.streams.former_logs import require_log
from api.streams.raw_log import Layout, Pieces, part
from api.streams.ring_follower import unreadable
from api.streams.shared_feed import read_page
from api.worker_context import Context
from logring.errors import LogError
from logring.layout import STDERR, STDOUT, STREAM_NAMES
from logring.reader import Head, LogReader
from store.runs.writes import Run

log = logging.getLogger("gunicorn.error")

_PAGE_BYTES = 1 << 20
_PAGE_LINES = 10_000
_LAST = -1000

_TEXT = Content("text/plain", {"type": "string"})
_STREAM = choice("stream", "Only lines of this stream.", STREAM_NAMES)


def _open(context: Context, run: Run) -> tuple[LogReader, Head]:
    """Open the run's log.

    Raises:
        ApiError: 500 the log cannot be read; 503 a former host has it.
    """

    def opened() -> tuple[LogReader, Head]:
        reader = LogReader(*context.feeds.paths(run))
        return reader, reader.head()

    try:
        reader, head = context.files(opened)
    except (LogError, OSError) as err:
        raise unreadable(run.id, err) from err
    try:
        require_log(context, run, head)
    except ApiError:
        reader.close()
        raise
    return reader, head


class _Body:
    """A response body that is generated while it is sent; it closes the log at the end.

    If reading fails midway, the connection is aborted, so that the client notices that the body is incomplete.
    """

    def __init__(self, run_id: str, parts: Iterable[bytes], reader: LogReader) -> None:
        self._run_id = run_id
        self._parts = parts
        self._reader = reader

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._parts
        except (LogError, OSError) as err:
            log.error("the log of %s was sent incompletely: %s", self._run_id, err)
            raise ConnectionAbortedError from err

    def close(self) -> None:
        self._reader.close()


@Operation(
    "GET",
    "/api/runs/{runId}/log",
    role=Role.VIEWER,
    query=(
        integer(
            "from",
            "First line to return; 0 is the first of the log, and negative numbers count from the end.",
            _LAST,
        ),
        instant("at", "Start with the first line written at this time or later; overrides `from`.", up=True),
        integer("limit", "Maximum number of lines.", 1000, minimum=1, maximum=10_000),
        _STREAM,
    ),
    answers={200: json_of(schemas.LogPage)},
    refusals=(404,),
    tag="logs",
)
def read_run_log(context: Context, call: Call) -> None:
    """Get a page of log lines.

    A page larger than one read is streamed, which bounds the memory that it uses.
    """
    at: int | None = call.query["at"]
    run = the_run(context, call.path["runId"])
    reader, head = _open(context, run)
    lines = max(head.lines, run.lines if run.status == "ended" else 0)
    first = head.first_available if head.lines else lines
    try:
        start = _from(call.query["from"], lines) if at is None else context.files(reader.line_at, at)
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
    # Read the first part before the response begins: an unreadable log then still gives an error status.
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

    def remaining_lines() -> Iterator[bytes]:
        yield first_part
        yield second_part
        yield from parts

    call.resp.stream = _Body(run.id, remaining_lines(), reader)


_END = b"]}"


def _from(anchor: int, lines: int) -> int:
    return anchor if anchor >= 0 else lines + anchor


def _page_parts(
    context: Context, reader: LogReader, document: schemas.LogPage, start: int, end: int, query: dict[str, Any]
) -> Iterator[bytes]:
    stream = STREAM_NAMES.index(query["stream"]) if query["stream"] else None
    remaining: int = query["limit"]
    part = msgspec.json.encode(document).removesuffix(_END)
    separator = b""
    position = start
    while remaining and position < end:
        position, records = context.files(_lines, reader, position, min(end - position, _PAGE_LINES), stream, remaining)
        remaining -= len(records)
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
    """Return the position at which to continue, and at most `most` of the lines from `position` on."""
    if stream is None:
        limit = min(limit, most)
    page = read_page(reader, position, limit, _PAGE_BYTES)
    records = [record for record in page.lines if stream is None or record.stream == stream]
    following = page.next
    if len(records) > most:
        following = records[most].n
        records = records[:most]
    return max(following, position + 1), [sse_encoding.line(record) for record in records]


@Operation(
    "GET",
    "/api/runs/{runId}/log/raw",
    role=Role.VIEWER,
    query=(_STREAM,),
    headers=RANGE,
    answers={200: _TEXT, 206: _TEXT, 304: None},
    sends={
        200: ("Content-Disposition", "ETag", "Accept-Ranges"),
        206: ("Content-Disposition", "ETag", "Accept-Ranges", "Content-Range"),
        304: ("ETag",),
    },
    refusals=(404, 416),
    tag="logs",
)
def download_run_log(context: Context, call: Call) -> None:
    """Download the run's full log: stdout and stderr in order of arrival.

    At a damaged block the connection is aborted after the bytes before it. Damage at the beginning yields an error
    status.
    """
    run = the_run(context, call.path["runId"])
    reader, head = _open(context, run)
    stream = call.query["stream"]
    streams = (STDOUT, STDERR) if stream is None else (STREAM_NAMES.index(stream),)
    byte_range: ByteRange | None = None
    try:
        # A run that printed nothing may have no log at all, so a missing seal does not make it incomplete.
        complete = run.status == "ended" and (head.sealed or not head.lines)
        layout = context.layouts.of(run.id, reader, head, streams) if complete else None
        if layout is None:
            chunks = reader.raw(streams)
        else:
            tag = _tag(run, layout, streams)
            if is_known(call.req, tag):
                reader.close()
                call.resp.set_header("ETag", tag)
                call.resp.status = 304
                return
            byte_range = span(call.req, layout.size, tag)
            chunks = part(reader, streams, layout, *(byte_range or (0, layout.size)))
        pieces = Pieces(chunks)
        first = context.files(pieces.next)
    except (LogError, OSError) as err:
        reader.close()
        raise unreadable(run.id, err) from err
    except ApiError:
        reader.close()
        raise
    call.resp.content_type = "text/plain; charset=utf-8"
    name = "-".join(part for part in (run.task_name.replace(":", "_"), run.id, stream) if part)
    call.resp.set_header("Content-Disposition", f'attachment; filename="{name}.log"')
    call.resp.set_header("X-Accel-Buffering", "no")
    if layout is not None:
        _describe(call, layout, byte_range, _tag(run, layout, streams))

    def parts() -> Iterator[bytes]:
        data = first
        while data:
            yield data
            data = context.files(pieces.next)

    call.resp.stream = _Body(run.id, parts(), reader)


def _tag(run: Run, layout: Layout, streams: tuple[int, ...]) -> str:
    return f'"{run.id}-{layout.size}-{"".join(map(str, streams))}"'


def _describe(call: Call, layout: Layout, byte_range: ByteRange | None, tag: str) -> None:
    """Set the status and headers for a log of known size."""
    call.resp.set_header("ETag", tag)
    call.resp.set_header("Accept-Ranges", "bytes")
    start, end = byte_range or (0, layout.size)
    if byte_range is not None:
        call.resp.status = 206
        call.resp.set_header("Content-Range", f"bytes {start}-{end - 1}/{layout.size}")
    call.resp.content_length = end - start


@Operation(
    "GET",
    "/api/runs/{runId}/log/line/{lineNumber}/history",
    role=Role.VIEWER,
    answers={200: json_of(schemas.History)},
    refusals=(404,),
    tag="logs",
)
def get_line_history(context: Context, call: Call) -> None:
    """Get the frame history of a settled progress bar or redraw line."""
    run = the_run(context, call.path["runId"])
    number = int(call.path["lineNumber"])
    reader, _head = _open(context, run)

    def read() -> list[list[bytes]] | None:
        try:
            return reader.history(number) if number <= INT64_MAX else None
        finally:
            reader.close()

    try:
        frames = context.files(read)
    except (LogError, OSError) as err:
        raise unreadable(run.id, err) from err
    if frames is None:
        raise ApiError(404, f"The log of run {run.id} has no line {number}")
    call.answer(schemas.History(frames=[[row.decode("utf-8", "replace") for row in rows] for rows in frames]))
