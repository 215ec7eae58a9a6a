"""A service that scores, on 127.0.0.1: it answers by a script, then with the response's length."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Service:
    """Answers with (status, body, headers) of a script, in order, then with the response's length.

    A body of bytes goes out as it is; anything else as JSON.
    """

    script: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    form: Callable[[float], Any] = lambda score: {
        "model": "rm-2",
        "data": [{"index": 0, "object": "pooling", "data": [score]}],
        "usage": {"prompt_tokens": 7},
    }
    url: str = ""


@contextmanager
def reward_server() -> Iterator[Service]:
    told = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.seen.append((self.path, dict(self.headers), body))
            status, value, headers = 200, None, {}
            if told.script:
                status, value, headers = told.script.pop(0)
            if value is None:
                value = told.form(float(len(body["messages"][1]["content"])))
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
