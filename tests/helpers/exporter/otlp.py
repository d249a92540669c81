"""A stand-in for an OpenTelemetry collector, which decodes requests with the published definitions."""

import http.server
import threading
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Received:
    """A record of a log, or a span, with the attributes of its resource."""

    message: Any
    resource: dict[str, Any]

    @property
    def attributes(self) -> dict[str, Any]:
        return _attributes(self.message.attributes)

    @property
    def text(self) -> str:
        return str(self.message.body.string_value)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Collector:
    """A stand-in, whose answers depend on `status`, by path, and on `rejects`."""

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.rejects = 0
        self.most_bytes: int | None = None
        """The longest request that it accepts; None: no limit."""
        self.logs: list[Received] = []
        self.spans: list[Received] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                collector.requests.append((self.path, headers))
                status = collector.status.get(self.path, 200)
                if collector.most_bytes is not None and len(body) > collector.most_bytes:
                    status = 413
                text = b"not now\nmore"
                if status == 200:
                    assert headers["content-type"] == "application/x-protobuf"
                    text = collector.take(self.path, body)
                self.send_response(status)
                if status != 200:
                    self.send_header("Retry-After", "3600")  # so that the SDK does not repeat the request
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def take(self, path: str, body: bytes) -> bytes:
        """Decode and keep the records of a request; return the body of the answer."""
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _attributes(group.resource.attributes)
                self.spans += [Received(span, resource) for scope in group.scope_spans for span in scope.spans]
            return b""
        assert path == "/v1/logs"
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            resource = _attributes(logs.resource.attributes)
            self.logs += [Received(record, resource) for scope in logs.scope_logs for record in scope.log_records]
        answer = ExportLogsServiceResponse()
        if self.rejects:
            answer.partial_success.rejected_log_records = self.rejects
            answer.partial_success.error_message = "too old"
        return bytes(answer.SerializeToString())

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
