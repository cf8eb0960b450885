"""What stands before every request: its host, its rate, its token, its size; and what is measured of it."""

import asyncio
import hmac
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.responses import Response

from divmf.serve.problems import problem
from divmf.serve.settings import ServeSettings

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# what tells nothing of users and writes nothing
OPEN = {"/", "/studio.css", "/studio.js", "/health", "/ready", "/metrics", "/openapi.json"}
LOCAL = {"localhost", "127.0.0.1", "[::1]"}
SECONDS = 10  # for a body to arrive
CLIENTS = 10_000  # whose rates are remembered
BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
]


class Rates:
    """How many requests each client may still send: a bucket that fills at the rate and holds two seconds of it."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.clock = rate, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take one request of a client; the seconds until there is one, 0 if there was."""
        if not self.rate:
            return 0.0
        now = self.clock()
        left, before = self._left.pop(client, (2 * self.rate, now))
        left = min(left + (now - before) * self.rate, max(2 * self.rate, 1.0))
        self._left[client] = (left - 1 if left >= 1 else left), now
        if len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self.rate


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: Application, settings: ServeSettings, registry: CollectorRegistry) -> None:
        self.app, self.settings = app, settings
        self.token = None if settings.token is None else settings.token.get_secret_value().encode()
        self.origins = settings.named_origins
        self.rates = Rates(settings.rate)
        self.worker = str(os.getpid())  # several of them answer on one port: each has counters of its own
        self.requests = Counter(
            "divmf_requests_total",
            "Requests answered by this worker.",
            ["worker", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "divmf_request_seconds", "Seconds until a request was answered.", ["worker", "route"], buckets=BUCKETS,
            registry=registry,
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with a problem."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        try:
            refused = self.refusal(scope)
            if refused is None:
                refused, receive = await self.body(scope, receive)
            await (self.app if refused is None else refused)(scope, receive, sending)
        except Exception:
            if status != 500:
                raise
            log.exception("a request failed")
            await problem(500, "the service failed; its log says why")(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.requests.labels(self.worker, route, str(status)).inc()
            self.seconds.labels(self.worker, route).observe(time.perf_counter() - began)

    def refusal(self, scope: Scope) -> Response | None:
        """Why a request is not even read."""
        headers = dict(scope["headers"])
        if self.token is None and not self.is_local(headers.get(b"host", b"")):
            # a page of another site that has its name point here must not speak with a service without a token
            return problem(421, "without a token, only localhost and 127.0.0.1 are answered")
        if self.is_foreign(scope, headers):
            return problem(403, "a page of another site may not write here; name its origin with --origins")
        client = (scope.get("client") or ("", 0))[0]
        if wait := self.rates.wait(client):
            detail = f"one client may send {self.settings.rate:g} requests a second; wait a little"
            return problem(429, detail, headers={"Retry-After": str(max(1, round(wait)))})
        if self.token is not None and scope["path"] not in OPEN and not self.preflight(scope, headers):
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
                detail = "send the token of the service as `Authorization: Bearer …`"
                return problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
        return None

    def is_local(self, host: bytes) -> bool:
        """Whether a Host header names this machine."""
        name = host.decode("latin-1").lower()
        return (name.rsplit(":", 1)[0] if not name.endswith("]") else name) in LOCAL

    def is_foreign(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Whether a browser writes for a page of another site: it does so without asking where the body is plain."""
        origin = headers.get(b"origin")
        if origin is None or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return False
        own = origin.partition(b"://")[2] == headers.get(b"host", b"")
        return not own and origin.decode("latin-1") not in self.origins

    def preflight(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Whether a browser asks if it may ask."""
        return bool(self.origins) and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers

    async def body(self, scope: Scope, receive: Receive) -> tuple[Response | None, Receive]:
        """Read the whole body, if it is not too large and does not take too long."""
        most = self.settings.largest_body
        told = dict(scope["headers"]).get(b"content-length", b"0")
        large = problem(413, f"a body may have {most:,} bytes; send less at a time", headers={"Connection": "close"})
        if not told.isdigit() or int(told) > most:
            return large, receive
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(SECONDS):
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return problem(400, "the client went away"), receive
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        return large, receive
                    more = message.get("more_body", False)
        except TimeoutError:
            return problem(
                408, f"the body took longer than {SECONDS} seconds", headers={"Connection": "close"}
            ), receive
        whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

        async def again() -> Message:
            nonlocal whole
            if whole is not None:
                message, whole = whole, None
                return message
            return await receive()

        return None, again
