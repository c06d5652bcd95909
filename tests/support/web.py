"""A real HTTP server on this machine whose answers a test writes, and that remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Web:
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def answer(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> None:
        """Underscores in names of headers are dashes."""

        def send(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        self.answers[path] = send


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            web.asked.append(Asked(self.command, self.path, headers, body))
            web.answers[self.path.partition("?")[0]](self)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        # The handshake is for the thread of its request, as any other reading is.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    web.port = server.server_port
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
