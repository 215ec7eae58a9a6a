"""A server on this machine's loopback, in a thread of its own.

It asks for no key and speaks no TLS, and so listens on 127.0.0.1 and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from types import TracebackType

import uvicorn

from eps_locked.domain.model import ChatTokenizer, Engine
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.serving.app import make_app
from eps_locked.serving.desk import Desk
from eps_locked.serving.rules import ServedRoute, ServingRules, require_routes
from eps_locked.serving.wire import SERVER_NAME

__all__ = ["HOST", "RunningServer", "start_server"]

HOST = "127.0.0.1"
# Connections that outlive the closing are cut off after this.
_GRACE_S = 5


class RunningServer:
    """A server that is up. ``url`` is what an OpenAI client takes as its base URL.

    Made by ``start_server``. A context manager: leaving it closes.
    """

    def __init__(self, url: str, desk: Desk, server: _Server, thread: threading.Thread) -> None:
        self.url = url
        self._desk = desk
        self._server = server
        self._thread = thread

    def wait(self) -> None:
        """Return when the server has ended by itself; an interrupt passes through."""
        while self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def close(self) -> None:
        """End it, and wait until its port, its threads and the engine are free. Repeats are safe.

        A request under way ends with an error; the engine is left on the bare base.
        """
        self._desk.close()
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start_server(
    engine: Engine,
    tokenizer: ChatTokenizer,
    routes: Sequence[ServedRoute],
    *,
    rules: ServingRules,
    host: str = HOST,
    port: int = 0,
) -> RunningServer:
    """Serve the routes; port 0 takes a free one. Returns when the server answers.

    Until it is closed, the engine belongs to it. Every adapter is attached once before anything is
    served, so that one that does not act is refused here. Raises MalformedInputError for another
    host than 127.0.0.1 or for routes that cannot be, BackendError for an adapter that the engine
    refuses or a port that cannot be had.
    """
    if host != HOST:
        raise MalformedInputError(
            "host",
            expected=f"{HOST}: the server asks for no key and speaks no TLS",
            found=host,
            next_step="put a gateway with a key before it to serve others",
        )
    by_name = require_routes(routes)
    desk = Desk(engine, tokenizer)
    desk.prove([route.adapter for route in routes if route.adapter is not None])
    app = make_app(desk, engine, tokenizer, by_name, rules)
    listener = _listen(port)
    server = _Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,  # a time, in answers that are to repeat byte for byte
            headers=[("server", SERVER_NAME)],
            timeout_graceful_shutdown=_GRACE_S,
        )
    )
    thread = threading.Thread(
        target=server.run, args=([listener],), name="eps-locked-server", daemon=True
    )
    url = f"http://{HOST}:{listener.getsockname()[1]}/v1"
    desk.open()
    thread.start()
    running = RunningServer(url, desk, server, thread)
    server.is_up_or_dead.wait()
    if not server.started:
        running.close()
        raise BackendError("server", problem="did not start", next_step="see the log above")
    return running


class _Server(uvicorn.Server):
    """Says when it is up: the caller waits for that instead of asking again and again."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up_or_dead = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up_or_dead.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            asyncio.run(self.serve(sockets))
        finally:
            for one in sockets or ():
                one.close()
            self.is_up_or_dead.set()


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        raise BackendError(
            f"{HOST}:{port}",
            problem=f"cannot be listened on ({error})",
            next_step="name another port, or 0 for a free one",
        ) from error
