"""Serves the files for browsers, and one page for all paths. The hash of the files' directory is part of each URL, so
that everything can be cached for ever and two versions are never mixed.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from rival_workers.dashboard.board import Board
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.requests import Endpoint, mount_of, problem_response
from rival_workers.dashboard.static_files.joined_modules import APPLICATION, joined

DIRECTORY = Path(__file__).parents[1] / "static"
#: The page that all paths of the application answer; it holds no data.
SHELL = "index.html"
#: The page of which a part is a module of its own, named by the query.
RUN = "pages/run.js"
_NO_QUERY: Mapping[str, str] = {}
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css"}
_NOT_THERE = (
    "<!doctype html><html lang=en><title>Rival</title>"
    "<p>The files of the dashboard are not installed. Its API is at <code>api/v1</code>.</p></html>"
)


#: Seconds after which the files are looked at again.
LOOK_AFTER = 0.5
#: Entries of `PAGES` in the application's module: the pattern of a path, and the module that shows the page.
_PAGE = re.compile(r'\[/(\^\S*\$)/, \(\) => import\("\./(pages/\w+\.js)"\)')
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class StaticFile:
    content: bytes
    compressed: bytes
    media_type: str


class StaticFiles:
    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._directory = directory
        self._files = lru_cache(2)(self._read)
        self._seen: tuple[float, Stamp] = (-LOOK_AFTER, ())

    def version(self) -> str:
        return self._files(self._stamp())[0]

    def file(self, version: str, name: str) -> StaticFile | None:
        """None: the file does not exist, or not in this version."""
        current, files = self._files(self._stamp())
        return files.get(name) if version == current else None

    def shell(self, base: str, page: str, query: Mapping[str, str] = _NO_QUERY, *, is_known: bool) -> bytes:
        """`page`: the path of the page that is opened, `is_known`: whether its reader is logged in."""
        version, files = self._files(self._stamp())
        found = files.get(SHELL)
        text = _NOT_THERE if found is None else found.content.decode()
        links = [f'<link rel="modulepreload" href="%STATIC%/{name}">' for name in modules_of(files, page, query)]
        text = text.replace("%PRELOAD%", "\n".join(links)).replace("%SESSION%", " data-session" if is_known else "")
        return text.replace("%BASE%", base).replace("%STATIC%", f"static/{version}").encode()

    def _paths(self) -> list[Path]:
        return sorted(path for path in self._directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)

    def _stamp(self) -> Stamp:
        """Changes when a file does: in a checkout they are edited while the server runs. A page asks for dozens of
        files, so that they are not looked at each time."""
        at, stamp = self._seen
        if time.monotonic() - at > LOOK_AFTER:
            stats = ((path, path.stat()) for path in self._paths())
            stamp = tuple((str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats)
            self._seen = (time.monotonic(), stamp)
        return stamp

    def _read(self, _stamp: object) -> tuple[str, dict[str, StaticFile]]:
        contents = {path.relative_to(self._directory).as_posix(): path.read_bytes() for path in self._paths()}
        digest = hashlib.sha256()
        for name, content in contents.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()[:12], _files(contents)


def _files(contents: Mapping[str, bytes]) -> dict[str, StaticFile]:
    """As they are sent: without comments, and modules joined with those that they import."""
    bare = {name: bare_file(name, content) for name, content in contents.items()}
    sources = {name: content.decode() for name, content in bare.items() if name.endswith(".js")}
    bare |= {name: text.encode() for name, text in joined(sources).items()}
    return {name: StaticFile(content, gzip.compress(content, 9), _type(name)) for name, content in bare.items()}


def modules_of(files: Mapping[str, StaticFile], page: str, query: Mapping[str, str]) -> list[str]:
    """The modules that a page needs: named in the shell, they are loaded at once."""
    if APPLICATION not in files:
        return []
    pages = _PAGE.findall(files[APPLICATION].content.decode())
    shown = [module for pattern, module in pages if re.search(pattern.replace("(?<", "(?P<"), page.rstrip("/"))][:1]
    view = _view_of_run(query) if shown == [RUN] else ""
    return [APPLICATION, *shown, *(name for name in [view] if name in files)]


def _view_of_run(query: Mapping[str, str]) -> str:
    """The module that a run's page needs beside its own."""
    tab = query.get("tab", "graph")
    if tab != "graph":
        return f"run/{tab}.js"
    return "run/preview.js" if "do" in query else "run/inspector.js"


def bare_file(name: str, content: bytes) -> bytes:
    return content if name.startswith("vendor/") else _COMMENTS[Path(name).suffix](content)


def _without_comments(pattern: bytes) -> Callable[[bytes], bytes]:
    """Comments and indentation are a tenth of what would be sent. Lines keep their numbers."""
    comment, indent = re.compile(pattern, re.MULTILINE | re.DOTALL), re.compile(rb"^[ \t]+", re.MULTILINE)

    def shorten(content: bytes) -> bytes:
        bare = comment.sub(lambda found: b"\n" * found[0].count(b"\n"), content)
        return indent.sub(b"", bare)

    return shorten


#: Spaces of a style sheet that mean nothing: around its braces and semicolons, and after the colon of a declaration.
_SPACES = re.compile(rb"[ \t]*([{};])[ \t]*|(?<=[\w-])(:)[ \t]+")
#: Of a script only comments that have their lines for themselves: others may be part of a text.
_COMMENTS: dict[str, Callable[[bytes], bytes]] = defaultdict(
    lambda: bytes,
    {
        ".js": _without_comments(rb"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)$"),
        ".css": lambda content: _SPACES.sub(rb"\1\2", _without_comments(rb"/\*.*?\*/")(content)),
    },
)


def _type(name: str) -> str:
    found = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


# -- endpoints --------------------------------------------------------------------------------------------


def file_endpoint(files: StaticFiles) -> Endpoint:
    async def static(request: Request) -> Response:
        found = files.file(request.path_params["version"], request.path_params["name"])
        if found is None:
            return problem_response(Refused(404, "NotFound", "This version does not have this file."))
        return _sent(request, found, {"cache-control": "public, max-age=31536000, immutable"})

    return static


def _sent(request: Request, file: StaticFile, headers: dict[str, str]) -> Response:
    headers["vary"] = "accept-encoding"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, headers=headers, media_type=file.media_type)
    return Response(file.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type)


def shell_endpoint(files: StaticFiles, board: Board) -> Endpoint:
    async def shell(request: Request) -> Response:
        page = request.path_params["page"]
        if page == "api" or page.startswith(("api/", "static/")):
            return problem_response(Refused(404, "NotFound", "The API does not have this resource."))
        content = files.shell(mount_of(request), page, request.query_params, is_known=_is_known(board, request))
        return _sent(request, StaticFile(content, gzip.compress(content), _type(SHELL)), {})

    return shell


def _is_known(board: Board, request: Request) -> bool:
    """A hint only: each request of the page is checked by itself, and says what is wrong with the login."""
    try:
        return board.sessions.identify(request.scope, request.headers, request.cookies) is not None
    except Exception:
        return False
