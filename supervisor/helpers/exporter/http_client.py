"""Requests, authentication and error messages of the exports over HTTP."""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator

from supervisor.helpers.exporter.log_records import DeliveryFailed, LinesRejected, Piece
from supervisor.ipc.export_job import ExportJob
from supervisor.ipc.log_line import printable

TIMEOUT_S = 10.0
MOST_ERROR = 200
"""Maximum number of characters of a receiver's error in a message."""
_TURN_S = 2.0
"""A delivery ends after this time, so that the cursors are stored even if the receiver is slow."""
_MOST_READ = 1 << 16
_REFUSALS = (400, 413, 422)
"""Statuses with which a receiver rejects records for good, because they are invalid, too old or too large."""


def chunks(pieces: list[Piece], limit: int, size_of: Callable[[Piece], int]) -> Iterator[tuple[int, list[Piece]]]:
    """Yield groups of pieces for one request each, up to a size, until the time of a delivery has passed.

    Yields:
        The number of pieces before the group, and the group.
    """
    delivered = 0
    end_s = time.monotonic() + _TURN_S
    while delivered < len(pieces) and (not delivered or time.monotonic() < end_s):
        count, size = 0, 0
        while delivered + count < len(pieces) and (not count or size < limit):
            size += size_of(pieces[delivered + count])
            count += 1
        yield delivered, pieces[delivered : delivered + count]
        delivered += count


def refusal(url: str, status: int, body: bytes, delivered: int, end: int) -> DeliveryFailed | LinesRejected:
    """Return the failure of a request with the pieces from `delivered` to `end`, by the answer."""
    text = printable(body[:_MOST_READ].decode(errors="replace").strip().partition("\n")[0])[:MOST_ERROR]
    message = f"{url} answered with status {status}" + (f": {text}" if text else "")
    return LinesRejected(message, delivered, end) if status in _REFUSALS else DeliveryFailed(message, delivered)


def authorization(job: ExportJob) -> dict[str, str]:
    """Return the headers that identify the sender. Files are read each time, because tokens expire and are replaced.

    Raises:
        OSError: a file cannot be read.
    """
    headers = {"X-Scope-OrgID": job.tenant} if job.tenant else {}
    if job.token_file:
        headers["Authorization"] = f"Bearer {_secret(job.token_file)}"
    elif job.username:
        pair = f"{job.username}:{_secret(job.password_file)}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return headers


def _secret(path: str) -> str:
    """Return the first line of a file.

    Raises:
        OSError: the file cannot be read, or its first line is not a secret in printable ASCII.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.readline().strip()
    except UnicodeDecodeError:
        text = ""
    except OSError as err:
        raise OSError(err.errno, f"{path}: {err.strerror}") from err
    if not text or not (text.isascii() and text.isprintable()):
        raise OSError(0, f"{path} has no secret in its first line")
    return text


def reason(err: BaseException) -> str:
    """Return why a request failed, for a message."""
    if isinstance(err, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(err, OSError) and err.strerror:
        return err.strerror
    return str(err) or type(err).__name__
