"""Requests, authentication and error messages of the exports over HTTP."""

import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from http import HTTPStatus

from supervisor.helpers.exporter.log_records import CUT, DeliveryFailed, LinesRejected, LogGap, Piece, TooLarge, halves
from supervisor.helpers.retry_after import retry_after_ms
from supervisor.ipc.log_jobs import ExportJob
from supervisor.ipc.log_line import printable

TIMEOUT_S = 10.0
MOST_ERROR = 200
"""Maximum number of characters of a receiver's error in a message."""
_TURN_S = 2.0
"""A delivery ends after this time, so that the cursors are stored even if the receiver is slow."""
_MOST_READ = 1 << 16
_REFUSALS = (400, 413, 422)
"""Statuses with which a receiver rejects records for good, because they are invalid, too old or too large."""
_TOO_LARGE = re.compile(r"larger than max|too large|size\b.*\bexceed|exceed.*\bsize", re.IGNORECASE)
"""How receivers, and gRPC services behind them, say so with another status than 413."""
_SAY_TOO_LARGE = (400, 422, 500)
REQUEST_BYTES = 1_000_000
"""Limit of an encoded request. Proxies commonly accept 1 MiB, Loki 4 MiB and collectors 20 MiB."""
_SHORT_LINE = 1024


def chunks(pieces: list[Piece], size_of: Callable[[Piece], int]) -> Iterator[tuple[int, list[Piece]]]:
    """Yield groups of pieces for one request each, until the time of a delivery has passed.

    Args:
        pieces: The pieces, each of which fits in a request.
        size_of: Returns the size of a piece in a request, or a little more.

    Yields:
        The number of pieces before the group, and the group.
    """
    delivered = 0
    end_s = time.monotonic() + _TURN_S
    while delivered < len(pieces) and (not delivered or time.monotonic() < end_s):
        count, size = 0, 0
        while delivered + count < len(pieces):
            size += size_of(pieces[delivered + count])
            if count and size > REQUEST_BYTES:
                break
            count += 1
        yield delivered, pieces[delivered : delivered + count]
        delivered += count


def push_in_parts(pieces: list[Piece], delivered: int, push: Callable[[list[Piece], int], None]) -> None:
    """Send pieces in one request, or, while the receiver finds it too large, in two with half of the lines each.

    A line that is too large alone is cut.

    Args:
        pieces: The pieces.
        delivered: The number of pieces that were delivered before them.
        push: Sends a request with pieces and the number of those delivered before.

    Raises:
        DeliveryFailed, LinesRejected: as `push`.
    """
    try:
        push(pieces, delivered)
    except TooLarge:
        half = len(pieces) // 2
        if half:
            push_in_parts(pieces[:half], delivered, push)
            push_in_parts(pieces[half:], delivered + half, push)
            return
        parts = _smaller(pieces[0])
        if not parts:
            raise
        lines, reason = 0, ""
        for part in parts:
            try:
                push_in_parts([part], delivered, push)
            except LinesRejected as err:
                lines += (
                    1 if isinstance(part.content, LogGap) else part.content.lines if err.lines is None else err.lines
                )
                reason = str(err)
        if lines:
            raise LinesRejected(reason, delivered, delivered + 1, lines=lines) from None


def _smaller(piece: Piece) -> list[Piece]:
    """Return the halves of a piece, or the beginning of its only line; empty if that is short already."""
    content = piece.content
    if isinstance(content, LogGap):
        return []
    if content.lines > 1:
        return [Piece(piece.run, half) for half in halves(content)]
    if len(content.text) <= _SHORT_LINE:
        return []
    start = content.text[: len(content.text) // 2].decode(errors="ignore").encode()
    return [Piece(piece.run, content._replace(text=start + CUT))]


def refusal(
    url: str, status: int, body: bytes, retry_after: str | None, delivered: int, end: int
) -> DeliveryFailed | LinesRejected:
    """Return the failure of a request with the pieces from `delivered` to `end`, by the answer."""
    text = printable(body[:_MOST_READ].decode(errors="replace").strip().partition("\n")[0])[:MOST_ERROR]
    message = f"{url} answered with status {status}" + (f": {text}" if text else "")
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status in _SAY_TOO_LARGE and _TOO_LARGE.search(text)):
        return TooLarge(message, delivered, end)
    if status in _REFUSALS:
        return LinesRejected(message, delivered, end)
    return DeliveryFailed(message, delivered, retry_after_ms(retry_after, time.time()) or 0)


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
