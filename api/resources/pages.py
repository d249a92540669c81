"""The static files of the dashboard. They are public, because they contain no data of the daemon."""

import os
from typing import NamedTuple

import falcon

import api
from api.operations.conditional import tag_of
from api.operations.guard import HTML_POLICY

_FOLDER = os.path.join(os.path.dirname(api.__file__), "static")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class _File(NamedTuple):
    data: bytes
    media_type: str
    tag: str


def _paths() -> dict[str, str]:
    """Return each file by its URL path. Pages are at the top level, without their suffix."""
    found = {}
    for folder, _, names in os.walk(_FOLDER):
        for name in names:
            file = os.path.join(folder, name)
            stem, suffix = os.path.splitext(os.path.relpath(file, _FOLDER))
            if suffix == ".html":
                found["/" if stem == "index" else f"/{stem}"] = file
            elif suffix in _TYPES:
                found[f"/static/{stem}{suffix}"] = file
    return found


class Site:
    """Serve the files that exist at start-up; each is read at its first request."""

    def __init__(self) -> None:
        self.allow = ["GET", "HEAD", "OPTIONS"]
        self._names = _paths()
        self.paths = tuple(self._names)
        self._files: dict[str, _File] = {}

    def _file(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            name = self._names[path]
            with open(name, "rb") as source:
                data = source.read()
            file = self._files[path] = _File(data, _TYPES[os.path.splitext(name)[1]], tag_of(data))
        return file

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Serve a file with its entity tag."""
        file = self._file(req.path)
        resp.set_header("ETag", file.tag)
        resp.set_header("Cache-Control", "no-cache")
        resp.set_header("Content-Security-Policy", HTML_POLICY)
        resp.content_type = file.media_type
        resp.data = file.data

    def on_options(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Return the allowed methods."""
        resp.status = 204
        resp.set_header("Allow", ", ".join(self.allow))

    def on_head(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer like GET, without the body."""
        self.on_get(req, resp)
