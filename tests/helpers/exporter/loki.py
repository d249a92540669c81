"""A stand-in for Loki, which checks requests as the documentation of the push API describes them."""

import http.server
import json
import threading
from typing import Any

Labels = tuple[tuple[str, str], ...]


class Loki:
    """A stand-in: it checks requests, and keeps each entry once, by labels, time and text."""

    def __init__(self) -> None:
        self.status = 204
        self.most_bytes: int | None = None
        """The longest request that it accepts; None: no limit."""
        self.most_line_bytes: int | None = None
        self.too_large = (413, b"request body too large")
        """The answer to longer requests and lines."""
        self.retry_after: str | None = None
        self.entries: dict[Labels, dict[tuple[int, str], dict[str, str]]] = {}
        self.requests: list[dict[str, str]] = []
        loki = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                loki.requests.append({name.lower(): value for name, value in self.headers.items()})
                status = loki.status
                if (self.path, self.headers["Content-Type"]) != ("/loki/api/v1/push", "application/json"):
                    status = 404
                text = b"" if status == 204 else b"entry for stream has timestamp too old\nmore"
                if status == 204 and loki.is_too_large(body):
                    status, text = loki.too_large
                elif status == 204:
                    loki.push(json.loads(body))
                self.send_response(status)
                if loki.retry_after is not None:
                    self.send_header("Retry-After", loki.retry_after)
                if text:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def is_too_large(self, body: bytes) -> bool:
        lines = [line for stream in json.loads(body)["streams"] for _, line, _ in stream["values"]]
        return (self.most_bytes is not None and len(body) > self.most_bytes) or (
            self.most_line_bytes is not None and max(len(line.encode()) for line in lines) > self.most_line_bytes
        )

    def push(self, body: Any) -> None:
        """Check a body against the documentation of the push API, and keep its entries."""
        assert set(body) == {"streams"}
        for stream in body["streams"]:
            assert set(stream) == {"stream", "values"}
            assert stream["values"]
            assert all(isinstance(text, str) for pair in stream["stream"].items() for text in pair)
            entries = self.entries.setdefault(tuple(sorted(stream["stream"].items())), {})
            for at, line, metadata in stream["values"]:
                assert isinstance(at, str)
                assert isinstance(line, str)
                assert len(at) == 19
                assert all(isinstance(text, str) for pair in metadata.items() for text in pair)
                entries[int(at), line] = metadata

    def lines(self, stream: str = "stdout") -> list[str]:
        """Return the lines of a stream in the order of their times."""
        entry_lists = [entries for labels, entries in self.entries.items() if ("stream", stream) in labels]
        return [line for entries in entry_lists for _, line in sorted(entries)]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
