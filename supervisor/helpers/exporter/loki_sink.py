"""The type ``loki``: Loki's push API, with JSON over HTTP.

The format is described at https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs::

    {"streams": [{"stream": {"job": "ringward", "host": "db1", "task": "web", "instance": "0", "stream": "stdout"},
                  "values": [["1764144000123000017", "GET / 200", {"runId": "01J…", "line": "17"}]]}]}

Labels have few values, so that Loki keeps few streams. The run id is therefore structured metadata. Loki drops an entry
if its stream already has one with the same time and text. So a repeated delivery adds no entries, and lines of the same
millisecond must differ in their nanoseconds.
"""

import http.client
import json
import ssl
from urllib.parse import urlsplit

import msgspec

from logring.layout import STREAM_NAMES
from supervisor.helpers.exporter.http_client import TIMEOUT_S, authorization, chunks, push_in_parts, reason, refusal
from supervisor.helpers.exporter.log_records import DeliveryFailed, LogGap, Piece, lines_of
from supervisor.ipc.log_jobs import ExportJob

_PATH = "/loki/api/v1/push"
_ENTRY_BYTES = 128
"""Limit of an encoded entry without its text."""
_STREAM_BYTES = 1024
"""Limit of the encoded labels of a stream."""
_NS = 1_000_000
"""Nanoseconds in a millisecond, of which each line of a run gets its own."""


class LokiSink:
    """Sends lines to Loki."""

    def __init__(self, job: ExportJob) -> None:
        self._url = job.url
        parts = urlsplit(job.url)
        self._path = parts.path or _PATH
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = parts.scheme == "https"
        self._job = job
        self._connection: http.client.HTTPConnection | None = None

    def deliver(self, pieces: list[Piece]) -> int:
        """Send the lines in several requests; return how many pieces were delivered.

        Raises:
            DeliveryFailed: Loki cannot be reached, or cannot accept lines now.
            LinesRejected: Loki will never accept the next pieces.
        """
        end = 0
        for delivered, chunk in chunks(pieces, _size):
            push_in_parts(chunk, delivered, self._push)
            end = delivered + len(chunk)
        return end

    def idle(self) -> None:
        """Nothing is due."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _push(self, pieces: list[Piece], delivered: int) -> None:
        """Send one request; `delivered` is the number of pieces that were delivered before it."""
        body = json.dumps({"streams": self._streams(pieces)}, ensure_ascii=False, separators=(",", ":")).encode()
        while True:
            again = self._connection is not None  # a server can close an idle connection at any time
            try:
                status, retry_after, answer = self._request(body)
                break
            except (OSError, http.client.HTTPException) as err:
                self.close()
                if not (again and isinstance(err, ConnectionError)):
                    raise DeliveryFailed(f"cannot send to {self._url}: {reason(err)}", delivered) from err
        if status in (200, 204):
            return
        self.close()  # the answer may not have been read completely
        raise refusal(self._url, status, answer, retry_after, delivered, delivered + len(pieces))

    def _request(self, body: bytes) -> tuple[int, str | None, bytes]:
        """Send one request; return the status, the header Retry-After and the beginning of the answer.

        Raises:
            OSError, http.client.HTTPException: the request failed without an answer.
        """
        headers = {"Content-Type": "application/json", "User-Agent": "Ringward", **authorization(self._job)}
        self._connection = self._connection or self._connect()
        self._connection.request("POST", self._path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.headers["Retry-After"], answer.read(1 << 16)

    def _streams(self, pieces: list[Piece]) -> list[dict[str, object]]:
        streams: dict[tuple[str, int, int], list[list[object]]] = {}
        for piece in pieces:
            content, run = piece.content, piece.run
            more = {"runId": run.id}
            if isinstance(content, LogGap):
                more["skipped"] = str(content.skipped)
            elif content.continued:
                more["continued"] = "true"
            values = streams.setdefault((run.task, run.instance, content.stream), [])
            for number, text in lines_of(piece):
                at_ns = content.ts * _NS + number % _NS
                values.append([str(at_ns), text.decode(errors="replace"), {**more, "line": str(number)}])
        common = {"job": "ringward", "host": self._job.host}
        return [
            {
                "stream": {**common, "task": task, "instance": str(instance), "stream": STREAM_NAMES[stream]},
                "values": values,
            }
            for (task, instance, stream), values in streams.items()
        ]

    def _connect(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._job.tls_ca or None)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)


def _size(piece: Piece) -> int:
    """Return the size of a piece in a request, or a little more."""
    content = piece.content
    text = content.text if isinstance(content, LogGap) else content.text.decode(errors="replace")
    lines = 1 if isinstance(content, LogGap) else content.lines
    return len(msgspec.json.encode(text)) + _ENTRY_BYTES * lines + _STREAM_BYTES
