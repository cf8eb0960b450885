"""The HTTP of a service: what stands before a body is limited, too, and what cannot be read gets a problem document."""

import asyncio
from http import HTTPStatus

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from divmf.serve.problems import problem

MOST_HEAD = 64 << 10  # bytes of a request line and headers
SECONDS = 20  # for them to arrive


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol of one connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._head, self._late = 0, self.loop.call_later(SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._late.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request; one whose head does not end is refused."""
        super().data_received(data)
        if not self._late.cancelled():
            self._head += len(data)
            if self._head > MOST_HEAD and not self.transport.is_closing():
                self.refuse(problem(431, f"the headers of a request may have {MOST_HEAD:,} bytes; send less"))

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._late.cancelled():
            self._head, self._late = 0, self.loop.call_later(SECONDS, self._too_late)

    def on_headers_complete(self) -> None:
        """The head has arrived."""
        self._late.cancel()
        super().on_headers_complete()

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            self.refuse(problem(408, f"the headers of the request took longer than {SECONDS} seconds"))

    def send_400_response(self, msg: str) -> None:
        """What is said of a request that could not be read."""
        self.refuse(problem(400, "this is not a request of HTTP/1.1"))

    def refuse(self, answer: Response) -> None:
        """Answer, and hang up."""
        status = HTTPStatus(answer.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"connection: close"]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()
