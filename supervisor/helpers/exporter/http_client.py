"""Authentication and error messages of the exports over HTTP."""

from base64 import b64encode

from supervisor.ipc.export_job import ExportJob

TIMEOUT_S = 10.0
REFUSALS = (400, 413, 422)
"""Statuses with which a receiver rejects records for good, because they are invalid, too old or too large."""


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
