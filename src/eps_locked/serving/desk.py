"""One request after the other: the engine's own thread, and what waits for it.

An engine is not thread-safe and its numbers may depend on what shares a batch, so requests queue
here in the order they came and each is answered alone. Equal requests get equal bytes, however
many come at once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from eps_locked.domain.model import AdapterFiles, ChatTokenizer, Engine
from eps_locked.errors import BackendError
from eps_locked.serving.answering import Answer, Piece, answer
from eps_locked.serving.prompts import Prepared
from eps_locked.serving.requests import ChatCall
from eps_locked.serving.rules import ServedRoute

__all__ = ["ClosingError", "Desk", "Event", "Ticket"]

_log = logging.getLogger(__name__)


class ClosingError(Exception):
    """The server was closed before the answer was whole."""


# What a ticket's listener hears: pieces as they come, and last the answer or why there is none.
Event = Piece | Answer | BackendError | ClosingError


class Ticket:
    """A request that waits or is being answered; ``give_up`` when nobody waits for it any more."""

    def __init__(
        self,
        route: ServedRoute,
        call: ChatCall,
        prepared: Prepared,
        listener: Callable[[Event], None],
    ) -> None:
        """``listener`` is called in the engine's thread, and not at all after ``give_up``."""
        self.route = route
        self.call = call
        self.prepared = prepared
        self._listener = listener
        self._given_up = threading.Event()

    def give_up(self) -> None:
        self._given_up.set()

    @property
    def is_given_up(self) -> bool:
        return self._given_up.is_set()

    def tell(self, event: Event) -> None:
        if not self.is_given_up:
            self._listener(event)


class _GivenUp(Exception):
    """Thrown through the engine when nobody waits for the answer. Never leaves this file."""


class Desk:
    """Answers tickets in a thread of its own, which alone touches the engine until ``close``."""

    def __init__(self, engine: Engine, tokenizer: ChatTokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._waiting: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._attached: str | None = None
        self._knows_attached = False
        self._thread = threading.Thread(target=self._work, name="eps-locked-engine", daemon=True)

    def prove(self, adapters: list[AdapterFiles]) -> None:
        """Attach each adapter once, before anything is served. Raises BackendError as ``attach``
        does, naming the adapter."""
        for adapter in adapters:
            self._engine.attach(adapter)
        self._engine.attach(None)
        self._attached, self._knows_attached = None, True

    def open(self) -> None:
        self._thread.start()

    def put(self, ticket: Ticket) -> None:
        if self._closing.is_set():
            ticket.tell(ClosingError())
        else:
            self._waiting.put(ticket)

    def close(self) -> None:
        """Stop after the token that is being computed, and leave the engine on the bare base.

        Who still waits is told that the server is closing.
        """
        self._closing.set()
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (ticket := self._waiting.get()) is not None:
            try:
                ticket.tell(self._answered(ticket))
            except _GivenUp:
                continue
            except (BackendError, ClosingError) as error:
                ticket.tell(error)
            except Exception as error:
                # Our own defect. The client must not wait for ever, and the next one is served.
                _log.exception("a request failed")
                ticket.tell(
                    BackendError("server", problem=f"failed inside ({type(error).__name__})")
                )
        self._attach(None)

    def _answered(self, ticket: Ticket) -> Answer:
        def check() -> None:
            if ticket.is_given_up:
                raise _GivenUp
            if self._closing.is_set():
                raise ClosingError

        check()
        self._attach(ticket.route.adapter)
        return answer(
            self._engine,
            self._tokenizer,
            ticket.call,
            ticket.prepared,
            on_piece=ticket.tell,
            check=check,
        )

    def _attach(self, adapter: AdapterFiles | None) -> None:
        """Only when the route changes: every attachment is proved anew, which takes passes."""
        wanted = None if adapter is None else adapter.digest
        if self._knows_attached and wanted == self._attached:
            return
        self._knows_attached = False
        self._engine.attach(adapter)
        self._attached, self._knows_attached = wanted, True
