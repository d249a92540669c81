"""The static files of the dashboard. They are public, because they contain no data of the daemon.

Pages refer to their files by URLs that contain a digest of all files: ``/static/DIGEST/js/main.js``. So browsers can
cache files forever, and load all of them again after an upgrade. Modules import each other by relative paths, which
stay below the same digest. A release contains a bundle of the modules (``deploy/bundle.sh``). If the bundle is missing
or older than the modules, browsers load the modules themselves.
"""

import hashlib
import os
from functools import cached_property
from typing import NamedTuple

import falcon

import api
from api.operations.conditional import tag_of
from api.operations.guard import HTML_POLICY

FOLDER = os.path.join(os.path.dirname(api.__file__), "static")
BUNDLE = "/static/bundle/"
_SOURCES = f"{BUNDLE}sources.txt"
"""The digest of the files that a bundle was made from."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_FOR_GOOD = "public, max-age=31536000, immutable"


class _File(NamedTuple):
    data: bytes
    media_type: str
    tag: str


class _Files(NamedTuple):
    """All files by URL path, without the digest."""

    digest: str
    files: dict[str, _File]


def _paths(folder: str) -> dict[str, str]:
    """Return the path of each file by URL path. Pages are at the top level, without their suffix."""
    files = {}
    for directory, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(directory, name)
            path = os.path.relpath(file, folder)
            stem, suffix = os.path.splitext(path)
            if suffix == ".html" and directory == folder:
                files["/" if stem == "index" else f"/{stem}"] = file
            elif suffix in _TYPES:
                files[f"/static/{path}"] = file
    return files


def digest_of(contents: dict[str, bytes]) -> str:
    """Return a digest of the files' URL paths and contents, excluding the files of the bundle."""
    digest = hashlib.blake2b(digest_size=8)
    for path, data in sorted(contents.items()):
        if not path.startswith(BUNDLE):
            digest.update(f"{path} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def read(folder: str = FOLDER) -> dict[str, bytes]:
    """Return the contents of all files by URL path."""
    contents = {}
    for path, name in _paths(folder).items():
        with open(name, "rb") as source:
            contents[path] = source.read()
    return contents


class Site:
    """Serves the files that exist at startup. The first request reads them all at once, so that they match."""

    def __init__(self, folder: str = FOLDER) -> None:
        self.allow = ["GET", "HEAD", "OPTIONS"]
        self._folder = folder
        self.paths = tuple(_paths(folder))

    @cached_property
    def _content(self) -> _Files:
        contents = read(self._folder)
        digest = digest_of(contents)
        if contents.get(_SOURCES, b"").decode().strip() == digest:
            contents["/"] = contents[f"{BUNDLE}index.html"]
        files = {}
        for path, data in contents.items():
            suffix = os.path.splitext(path)[1] or ".html"
            if suffix == ".html":
                data = data.replace(b'"static/', f'"static/{digest}/'.encode())
            files[path] = _File(data, _TYPES[suffix], tag_of(data))
        return _Files(digest, files)

    def on_get(self, req: falcon.Request, resp: falcon.Response, digest: str = "", name: str = "") -> None:
        """Serve a file with its entity tag.

        A page from an earlier version gets the current version of its files.

        Raises:
            falcon.HTTPNotFound: there is no such file.
        """
        snapshot = self._content
        file = snapshot.files.get(f"/static/{name}" if name else req.path)
        if file is None:
            raise falcon.HTTPNotFound
        resp.set_header("ETag", file.tag)
        resp.set_header("Cache-Control", _FOR_GOOD if digest == snapshot.digest else "no-cache")
        resp.set_header("Content-Security-Policy", HTML_POLICY)
        resp.content_type = file.media_type
        resp.data = file.data

    def on_options(self, _req: falcon.Request, resp: falcon.Response, **_path: str) -> None:
        """Send the allowed methods."""
        resp.status = 204
        resp.set_header("Allow", ", ".join(self.allow))

    def on_head(self, req: falcon.Request, resp: falcon.Response, digest: str = "", name: str = "") -> None:
        """Answer like GET, but without a body."""
        self.on_get(req, resp, digest, name)
