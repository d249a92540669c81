"""The static pages, which everybody may load: they show nothing before somebody logs in."""

import os

import falcon

from api.conditional import tag_of
from api.guard import HTML_POLICY

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "static")
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/static/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/static/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/static/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
    "/static/style.css": ("style.css", "text/css; charset=utf-8"),
}


class Site:
    """Serves a fixed set of files, read once."""

    def __init__(self) -> None:
        self.allow = ["GET", "HEAD", "OPTIONS"]
        self.paths = tuple(_FILES)
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for path, (name, media_type) in _FILES.items():
            with open(os.path.join(_FOLDER, name), "rb") as file:
                data = file.read()
            self._files[path] = (data, media_type, tag_of(data))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """A file, with its entity tag."""
        data, media_type, tag = self._files[req.path]
        resp.set_header("ETag", tag)
        resp.set_header("Cache-Control", "no-cache")
        resp.set_header("Content-Security-Policy", HTML_POLICY)
        resp.content_type = media_type
        resp.data = data

    def on_options(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """What can be done here."""
        resp.status = 204
        resp.set_header("Allow", ", ".join(self.allow))

    def on_head(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As GET, without the body."""
        self.on_get(req, resp)
