"""The HTTP API of a service: an application around one `Live`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from divmf import __version__
from divmf.market.rules import Rules
from divmf.serve.gauges import LedgerGauges
from divmf.serve.guard import Guard
from divmf.serve.live import Live
from divmf.serve.pages import Recommendation
from divmf.serve.problems import Problem, add_handlers, problem, responses
from divmf.serve.schemas import (
    Counted,
    EventsBody,
    EventsKept,
    ItemsBody,
    Kept,
    Page,
    PointBody,
    PreviewBody,
    RecommendBody,
    RulesBody,
    ShownBody,
    Status,
)
from divmf.serve.schemas_told import (
    CurveTold,
    Exposure,
    Found,
    ItemTold,
    LoggedEvent,
    PageShown,
    PersonTold,
    PreviewSlot,
    RulesTold,
)
from divmf.serve.settings import ServeSettings
from divmf.serve.store import StoreDown
from divmf.serve.studio_data import curve_of, example_people, latest_of, preview_of

log = logging.getLogger(__name__)

STALE = 10.0  # seconds without a look at the store after which a worker is not ready
ABOUT = """
Recommendations with a ledger of exposure. A request is answered by the best list for one person at the present
discounts; what is shown pays for its slot, what is not becomes cheaper, so that the whole catalog is shown in its time.

A page counts as shown when it is answered. Systems that render later ask with `dry_run` and tell by `POST /shown`.
With a token, every request but those for health and metrics carries `Authorization: Bearer …`. Errors are problem
documents (RFC 9457).
"""
TAGS = [
    {"name": "recommend", "description": "Pages for people, and what they did with them."},
    {"name": "items", "description": "New items, stock, shares, rules; how often each was shown."},
    {"name": "exposure", "description": "How showings are shared out, and the operating point."},
    {"name": "service", "description": "For those who run it."},
]
COMMON = responses(400, 401, 403, 408, 413, 421, 422, 429, 431, 500, 503)
STUDIO = {"/": ("index.html", "text/html"), "/studio.css": ("studio.css", "text/css"),
          "/studio.js": ("studio.js", "text/javascript")}  # fmt: skip
ItemId = Annotated[str, Path(min_length=1, max_length=200, description="the item's id")]


def create_app(live: Live, settings: ServeSettings) -> FastAPI:
    """The application of one worker."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(every(settings.sync_seconds, live.sync)),
            asyncio.create_task(every(settings.snapshot_seconds, live.snapshot)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await run_in_threadpool(live.close)

    app = FastAPI(
        title="divmf", version=__version__, summary="Live recommendations with an exposure ledger", description=ABOUT,
        openapi_tags=TAGS, docs_url=None, redoc_url=None, lifespan=lifespan, responses=COMMON,
        generate_unique_id_function=lambda route: route.name,
    )  # fmt: skip
    registry = CollectorRegistry()
    registry.register(LedgerGauges(live))
    add_handlers(app)
    add_people(app, live)
    add_items(app, live)
    add_exposure(app, live, settings)
    add_service(app, live, registry)
    summarize(app)
    describe(app, settings)
    if settings.named_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.named_origins, allow_methods=["GET", "POST", "PUT"],
            allow_headers=["authorization", "content-type"],
        )  # fmt: skip
    app.add_middleware(Guard, settings=settings, registry=registry)
    return app


async def every(seconds: float, work: Callable[[], Any]) -> None:
    """Do something again and again, whatever comes of it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await run_in_threadpool(work)
        except (StoreDown, ValueError, OSError) as error:
            log.error("%s failed: %s", work.__name__, error)


def summarize(app: FastAPI) -> None:
    """Let the first sentence of what an operation does be its summary."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.description:
            first, _, rest = " ".join(route.description.split()).partition(". ")
            route.summary, route.description = first.rstrip("."), rest or first


def describe(app: FastAPI, settings: ServeSettings) -> None:
    """Make the OpenAPI document say what problems look like, and how one is let in."""
    make = app.openapi

    def made() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make()
            parts = document.setdefault("components", {})
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            parts.setdefault("schemas", {}).update(schema.pop("$defs", {}) | {"Problem": schema})
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            if settings.token is not None:
                document["security"] = [{"token": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = made  # type: ignore[method-assign]


def page_of(made: Recommendation) -> JSONResponse:
    """A page as an answer."""
    return JSONResponse(asdict(made))


def add_people(app: FastAPI, live: Live) -> None:
    """What people are shown, and what they do."""

    @app.post("/recommend", response_model=Page, tags=["recommend"], responses=responses(409))
    async def recommend(body: RecommendBody) -> Response:
        """Fill a page for somebody: a known user, a history, or a person of whom nothing is known.

        The page counts as shown, and is kept, when this answers; with `dry_run` it does not.
        """
        query, basis = live.query(body.user, body.history, body.k, body.exclude, body.where, body.accuracy)
        if len(query.history):
            await run_in_threadpool(live.engine.taste, query)  # to fold somebody in takes a while
        person = None if body.user is None else str(body.user)
        return page_of(await live.arecommend(query, basis, person, body.dry_run))

    @app.post("/shown", tags=["recommend"], responses=responses(409))
    async def shown(body: ShownBody) -> Counted:
        """Count a page that was rendered after a recommendation with `dry_run`."""
        (outcome,) = await asyncio.wrap_future(live.showing(body.items, body.user, body.request))
        if outcome.stale:
            await run_in_threadpool(live.follow_rules)
            (outcome,) = await asyncio.wrap_future(live.showing(body.items, body.user, body.request))
        return Counted(counted=live.rendered(body.items, body.user, outcome))

    @app.post("/events", tags=["recommend"])
    async def events(body: EventsBody) -> EventsKept:
        """Tell what people met: it is in their histories at once, and in the log for the next training."""
        done = live.events([(event.user, event.item, event.kind) for event in body.events])
        outcomes = await asyncio.wrap_future(done)
        named, items = dict.fromkeys(event.item for event in body.events), live.engine.items
        unknown = [item for item in named if items.number(item, "item") is None]
        return EventsKept(kept=len(outcomes), unknown=unknown)

    @app.get("/events", tags=["recommend"], response_model=list[LoggedEvent])
    def event_log(
        after: Annotated[int, Query(ge=0, lt=1 << 62)] = 0, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000
    ) -> list[dict[str, Any]]:
        """The log of events, for the next training; `after`: the number of the last one that is known."""
        rows = live.store.events(after, limit)
        return [
            {"number": number, "user_id": row.person, "item_id": row.item, "kind": row.kind, "timestamp": row.timestamp}
            for number, row in rows
        ]

    @app.get("/requests", tags=["recommend"], response_model=list[PageShown])
    def requests(limit: Annotated[int, Query(ge=1, le=200)] = 20) -> list[dict[str, Any]]:
        """The last pages shown, the latest first."""
        return latest_of(live, limit)


def add_items(app: FastAPI, live: Live) -> None:
    """New items, stock, and one item's part of the exposure."""

    @app.post("/items", tags=["items"])
    async def put_items(body: ItemsBody) -> Kept:
        """Add items, or change titles, attributes, capacities and shares of those there are.

        A new item takes the place of the mean of those it is like until the next training, and enters at the discount
        at which recent requests would have shown it at its pace.
        """
        given = [item.model_dump(exclude_defaults=True) | {"item": item.item} for item in body.items]
        done = await run_in_threadpool(live.describing, given)
        outcomes = await asyncio.wrap_future(done)
        return Kept(kept=len(outcomes))

    @app.get("/items", tags=["items"], response_model=list[Found])
    def search(
        q: Annotated[str, Query(min_length=1, max_length=200)], limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> list[dict[str, Any]]:
        """Find items by a part of their id or title."""
        return live.search(q, limit)

    @app.get("/rules", tags=["items"], response_model=RulesTold)
    def rules() -> dict[str, Any]:
        """The rules that hold: what each total was promised and given; those furthest from their floor first."""
        return live.rules()

    @app.put("/rules", tags=["items"], response_model=RulesTold)
    def set_rules(body: RulesBody) -> dict[str, Any]:
        """Keep these rules from now on, in all workers, in the place of all others: the tables of rules.toml.

        Empty tables mean no rules, `{"start": true}` those that the service was started with.
        """
        live.set_rules(None if body.start else body.model_dump(exclude={"start"}, exclude_defaults=True))
        return live.rules()

    @app.get("/items/{item}", tags=["items"], response_model=ItemTold, responses=responses(404))
    def item(item: ItemId) -> dict[str, Any]:
        """One item: how often it was shown, to whom of late, at what discount, and what would give it more."""
        return live.item(item)


def add_exposure(app: FastAPI, live: Live, settings: ServeSettings) -> None:
    """How showings are shared out, and where on the curve the service stands."""

    @app.get("/exposure", tags=["exposure"], response_model=Exposure)
    def exposure(group: Annotated[str | None, Query(max_length=100)] = settings.group) -> dict[str, Any]:
        """Coverage, Gini, Lorenz curve, items starved and drift, over this horizon and the one before."""
        return live.exposure(group or None)

    @app.get("/curve", tags=["exposure"], response_model=CurveTold)
    def curve() -> dict[str, Any]:
        """The trade-off between accuracy and exposure, point by point, and the present one."""
        return curve_of(live)

    @app.get("/people", tags=["exposure"], response_model=list[PersonTold])
    def people() -> list[dict[str, Any]]:
        """A few users of the training as examples, with what they met."""
        return example_people(live)

    @app.post("/preview", tags=["exposure"], response_model=list[list[PreviewSlot]])
    def preview(body: PreviewBody) -> list[list[dict[str, Any]]]:
        """The lists of some people at a point of the curve, at the run's own discounts; nothing is counted."""
        return preview_of(live, [(person.user, person.history) for person in body.people], body.epoch, body.k)

    @app.post("/point", tags=["exposure"])
    async def point(body: PointBody) -> Status:
        """Go over to another point of the curve, in all workers; discounts are blended over."""
        done = await run_in_threadpool(live.set_point, body.epoch)
        await asyncio.wrap_future(done)
        return status_of(live)

    @app.post("/reload", tags=["exposure"])
    async def reload() -> Status:
        """Take the run folder in again as it is now, in all workers, without dropping a request."""
        done = await run_in_threadpool(live.reload)
        await asyncio.wrap_future(done)
        return status_of(live)


def status_of(live: Live) -> Status:
    """How the service is."""
    return Status(status="ok", point=live.engine.point.name, requests=live.engine.ledger.requests)


def add_service(app: FastAPI, live: Live, registry: CollectorRegistry) -> None:
    """Health, metrics, and the studio."""

    @app.get("/health", tags=["service"])
    async def health() -> Status:
        """Whether the process is there."""
        return status_of(live)

    @app.get("/ready", tags=["service"], response_model=Status)
    async def ready() -> Status | Response:
        """Whether requests can be answered: the store is followed."""
        if live.behind > STALE:
            return problem(503, f"the store was last read {live.behind:.0f} seconds ago", headers={"Retry-After": "2"})
        return status_of(live)

    @app.get("/metrics", tags=["service"], response_class=Response,
             responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})  # fmt: skip
    def metrics() -> Response:
        """Metrics for Prometheus: requests and latency of this worker, exposure of all."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    folder = files("divmf.serve") / "studio"
    for path, (name, kind) in STUDIO.items():
        app.add_api_route(path, studio_file((folder / name).read_bytes(), kind), include_in_schema=False)


def studio_file(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    """A file of the studio as a route."""

    async def answer() -> Response:
        return Response(content, media_type=kind)

    return answer


def open_live(settings: ServeSettings) -> Live:
    """The `Live` of a service."""
    rules = None if settings.rules is None else Rules.read(settings.rules, settings.catalog)
    live = Live(
        settings.run, store=settings.store, horizon=settings.horizon, catalog=settings.catalog, rules=rules,
        group=settings.group,
    )  # fmt: skip
    warm_up(live)
    return live


def warm_up(live: Live) -> None:
    """Make a page of each basis that is not shown to anybody: what is compiled at its first use is compiled now."""
    engine = live.engine
    for asked in ({"user": engine.users.ids[0]}, {"history": [engine.items.ids[0]]}, {}):
        with suppress(ValueError, RuntimeError):  # of what cannot be answered, requests will hear
            live.recommend(**asked, dry_run=True)
