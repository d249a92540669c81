"""The type ``otlp``: OpenTelemetry logs and spans, sent by its SDK as protobuf over HTTP.

A run is a span. Its lines carry the trace id and the span id, so that a backend shows them together. The ids are
derived from run ids, so a repeated delivery has the same ids::

    trace id  the 128 bits of the first attempt's ULID
    span id   the last 64 bits of the run's ULID
    parent    for a retry, the span of the first attempt

The SDK reports only success or failure, so an HTTP adapter keeps the last answer or error.
"""

import logging
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from requests.adapters import HTTPAdapter
from ulid import ULID

from logring.layout import STDERR, STDOUT, STREAM_NAMES
from supervisor.helpers.exporter.cursors import FollowedRun
from supervisor.helpers.exporter.http_client import (
    MOST_ERROR,
    TIMEOUT_S,
    authorization,
    chunks,
    push_in_parts,
    reason,
    refusal,
)
from supervisor.helpers.exporter.log_records import (
    DeliveryFailed,
    EndedRun,
    LinesRejected,
    LogGap,
    Piece,
    TooLarge,
    lines_of,
)
from supervisor.ipc.log_jobs import ExportJob
from supervisor.ipc.log_line import printable
from supervisor.version import VERSION

_RECORD_BYTES = 200
"""Limit of an encoded record without its text."""
_RESOURCE_BYTES = 1024
"""Limit of the encoded attributes of a resource."""
_MOST_SPANS = 1000
_NS = 1_000_000
_SPAN_ID = (1 << 64) - 1
_SEVERITIES = {STDOUT: SeverityNumber.INFO, STDERR: SeverityNumber.ERROR}
_GOOD, _NEUTRAL = "succeeded", ("stopped", "daemon_stopped")


class OtlpSink:
    """Sends lines and spans to a collector."""

    def __init__(self, job: ExportJob) -> None:
        self._job = job
        self._session = requests.Session()
        self._session.trust_env = False  # do not use proxies from the environment or passwords from ~/.netrc
        self._adapter = _LastAnswer()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, self._adapter)
        base = job.url.rstrip("/")
        self._logs_url, self._spans_url = f"{base}/v1/logs", f"{base}/v1/traces"
        # All parameters are set, because the SDK takes missing ones from environment variables.
        common: dict[str, Any] = {
            "certificate_file": job.tls_ca or ssl.get_default_verify_paths().cafile,
            "headers": {"User-Agent": f"Ringward/{VERSION}"},
            "timeout": TIMEOUT_S,
            "compression": Compression.NoCompression,
            "session": self._session,
        }
        self._logs = OTLPLogExporter(self._logs_url, **common)
        self._spans = OTLPSpanExporter(self._spans_url, **common)
        self._scope = InstrumentationScope("ringward", VERSION)
        # Without a handler, Python would print each failure that the SDK logs to stderr.
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False

    def deliver(self, pieces: list[Piece]) -> int:
        """Send the lines in several requests; return how many pieces were delivered.

        Raises:
            DeliveryFailed: the collector cannot be reached, or cannot accept lines now.
            LinesRejected: the collector will never accept some of the lines.
        """
        end = 0
        for delivered, chunk in chunks(pieces, _size):
            push_in_parts(chunk, delivered, self._push)
            end = delivered + len(chunk)
        return end

    def _push(self, pieces: list[Piece], delivered: int) -> None:
        """Send one request; `delivered` is the number of pieces that were delivered before it."""
        end = delivered + len(pieces)
        records = [record for piece in pieces for record in self._records(piece)]
        sent = self._send(self._logs_url, partial(self._logs.export, records), delivered, end)
        self._check_partial(ExportLogsServiceResponse, sent, delivered, end)

    def deliver_ends(self, runs: list[EndedRun]) -> int:
        """Send a span for each run, at most 1000; return how many spans were delivered.

        Raises:
            DeliveryFailed: the collector cannot be reached, or cannot accept spans now.
            LinesRejected: the collector will never accept some of the spans.
        """
        chosen = runs[:_MOST_SPANS]
        spans = [self._span(ended_run) for ended_run in chosen]
        try:
            sent = self._send(self._spans_url, partial(self._spans.export, spans), 0, len(chosen))
        except TooLarge:
            if len(chosen) == 1:
                raise
            return self.deliver_ends(chosen[: len(chosen) // 2])
        self._check_partial(ExportTraceServiceResponse, sent, 0, len(chosen))
        return len(chosen)

    def idle(self) -> None:
        """Nothing is due."""

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    # Requests

    def _send(self, url: str, export: Callable[[], object], delivered: int, end: int) -> bytes:
        """Send one request with the pieces from `delivered` to `end`; return the body of the answer.

        Raises:
            DeliveryFailed: there is no answer, or the collector cannot accept the request now.
            LinesRejected: the collector will never accept the request.
        """
        adapter = self._adapter
        adapter.forget()
        try:
            self._session.headers.update(authorization(self._job))
        except OSError as err:
            raise DeliveryFailed(f"cannot send to {url}: {reason(err)}", delivered) from err
        succeeded = export() in (LogRecordExportResult.SUCCESS, SpanExportResult.SUCCESS)
        answer, error = adapter.answer, adapter.error
        if answer is None:
            raise DeliveryFailed(f"cannot send to {url}: {_deepest(error)}", delivered) from error
        if succeeded and answer.status_code < HTTPStatus.MULTIPLE_CHOICES:  # the SDK takes a redirect for a success
            return answer.content
        raise refusal(url, answer.status_code, answer.content, answer.headers.get("Retry-After"), delivered, end)

    @staticmethod
    def _check_partial(kind: type[Any], body: bytes, delivered: int, end: int) -> None:
        """Check whether a collector has dropped records of a request that it accepted.

        Raises:
            LinesRejected: the answer says that the collector dropped some records.
        """
        try:
            success = kind.FromString(body).partial_success
        except DecodeError:  # some collectors answer in JSON
            return
        dropped = getattr(success, "rejected_log_records", 0) or getattr(success, "rejected_spans", 0)
        if dropped:
            message = f"the collector rejected {dropped} records: {printable(success.error_message)[:MOST_ERROR]}"
            raise LinesRejected(message, delivered, end, lines=dropped)

    # Records

    def _resource(self, run: FollowedRun) -> Resource:
        return Resource(
            {"service.name": run.task, "service.instance.id": str(run.instance), "host.name": self._job.host}
        )

    def _records(self, piece: Piece) -> Iterator[ReadableLogRecord]:
        content, run = piece.content, piece.run
        at_ns = content.ts * _NS
        more: dict[str, Any] = {"log.iostream": STREAM_NAMES[content.stream], "ringward.run_id": run.id}
        if isinstance(content, LogGap):
            more["ringward.skipped"] = content.skipped
        elif content.continued:
            more["ringward.continued"] = True
        context = set_span_in_context(NonRecordingSpan(_context(run)), Context()) if self._job.spans else Context()
        resource = self._resource(run)
        for number, text in lines_of(piece):
            record = LogRecord(
                timestamp=at_ns,
                observed_timestamp=at_ns,
                context=context,
                severity_number=_SEVERITIES.get(content.stream, SeverityNumber.INFO2),
                body=text.decode(errors="replace"),
                attributes={**more, "ringward.line": number},
            )
            yield ReadableLogRecord(record, resource, self._scope)

    def _span(self, ended_run: EndedRun) -> ReadableSpan:
        run, row = ended_run.run, ended_run.row
        reason = row.end_reason or ""
        attributes: dict[str, Any] = {
            "ringward.run_id": run.id,
            "ringward.end_reason": reason,
            "ringward.trigger": row.triggered_by,
            "ringward.attempt": row.retry_attempt,
        }
        if row.exit_code >= 0:
            attributes["process.exit.code"] = row.exit_code
        status = Status(StatusCode.ERROR, reason)
        if reason == _GOOD:
            status = Status(StatusCode.OK)
        elif reason in _NEUTRAL:
            status = Status(StatusCode.UNSET)
        end_ms = row.ended_at or row.created_at
        return ReadableSpan(
            run.task,
            _context(run),
            parent=_context(run._replace(id=run.root)) if run.root and run.root != run.id else None,
            resource=self._resource(run),
            attributes=attributes,
            kind=SpanKind.INTERNAL,
            status=status,
            start_time=(row.started_at or end_ms) * _NS,
            end_time=end_ms * _NS,
            instrumentation_scope=self._scope,
        )


def _size(piece: Piece) -> int:
    """Return the size of a piece in a request, or a little more."""
    content = piece.content
    if isinstance(content, LogGap):
        return len(content.text) + _RECORD_BYTES + _RESOURCE_BYTES
    text = content.text.decode(errors="replace").encode()
    return len(text) + _RECORD_BYTES * content.lines + _RESOURCE_BYTES


def _context(run: FollowedRun) -> SpanContext:
    """Return the trace id and the span id of a run."""
    trace = int(ULID.from_str(run.root or run.id))
    return SpanContext(trace, int(ULID.from_str(run.id)) & _SPAN_ID, is_remote=False, trace_flags=TraceFlags(1))


class _LastAnswer(HTTPAdapter):
    """Keeps the answer to the last request, or its error if there was no answer."""

    answer: requests.Response | None = None
    error: Exception | None = None

    def forget(self) -> None:
        """Forget the last answer and the last error."""
        self.answer = self.error = None

    def send(self, *args: Any, **options: Any) -> requests.Response:
        """Send a request, and keep its answer or its error."""
        self.forget()
        try:
            self.answer = super().send(*args, **options)
        except (OSError, requests.RequestException) as err:
            self.error = err
            raise
        return self.answer


def _deepest(err: BaseException | None) -> str:
    """Return why a connection failed, from the innermost of several nested errors."""
    seen = err
    while seen is not None:
        if isinstance(seen, requests.Timeout):
            return reason(TimeoutError())
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return reason(err) if err is not None else "no request was sent"
