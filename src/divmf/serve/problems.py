"""Errors as problem documents (RFC 9457): what is wrong and what to do, never a traceback."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from divmf.engine.masking import printable
from divmf.serve.pages import Full
from divmf.serve.store import StoreDown

log = logging.getLogger(__name__)

TITLES = {
    400: "The request could not be read",
    401: "A token is needed",
    403: "The request comes from elsewhere",
    404: "There is no such thing",
    405: "This cannot be done here",
    408: "The request took too long to arrive",
    409: "This cannot be now",
    413: "The request is too large",
    421: "The request is meant for another host",
    422: "The request is not possible",
    429: "Too many requests",
    431: "The request is too large",
    500: "The service failed",
    503: "The service is not available",
}


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str = Field(description="where it stands, as body.items.0.share")
    message: str = Field(description="what is wrong with it")


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(default="about:blank", description="always about:blank: the status says what it is")
    title: str = Field(description="what kind of problem it is")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong with this request, and the way out")
    errors: list[FieldProblem] = Field(default_factory=list, description="the fields that are wrong")


MEDIA = "application/problem+json"


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems of an operation, for its documentation."""
    return {
        status: {
            "description": TITLES[status],
            "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


def problem(
    status: int, detail: str, errors: Sequence[FieldProblem] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """A problem document as an answer."""
    told = Problem(title=TITLES.get(status, "The request failed"), status=status, detail=detail, errors=list(errors))
    text = json.dumps(told.model_dump())  # ASCII alone: whatever a client sent, it is escaped
    return Response(text, status, headers=dict(headers or {}), media_type=MEDIA)


def said_of(error: Mapping[str, Any]) -> str:
    """What is wrong with a field, in our words."""
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    if error["type"] in ("model_attributes_type", "dict_type") and error["loc"] == ("body",):
        return "should be a JSON object, sent as content-type: application/json"
    return str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")


def add_handlers(app: FastAPI) -> None:
    """Every error that a request can meet, as a problem document."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        found = error.errors()[:20]
        unread = [each for each in found if each["type"] == "json_invalid"]
        if unread:
            why = f"{unread[0]['ctx']['error']}, at character {unread[0]['loc'][-1]}"
            return problem(400, f"the body is not JSON: {why}")
        errors = [FieldProblem(field=".".join(map(str, each["loc"]))[:200], message=said_of(each)) for each in found]
        return problem(422, f"{errors[0].field}: {errors[0].message}" if errors else "the request is not valid", errors)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code in (404, 405):
            asked = f"{request.method} {printable(request.url.path)[:200]}"
            detail = f"there is no {asked}; GET /openapi.json lists what there is"
        return problem(error.status_code, detail, headers=error.headers)

    @app.exception_handler(Full)
    async def full(_: Request, error: Full) -> Response:
        return problem(409, str(error))

    @app.exception_handler(ValueError)
    async def impossible(_: Request, error: ValueError) -> Response:
        return problem(422, str(error).splitlines()[0])

    @app.exception_handler(KeyError)
    async def missing(_: Request, error: KeyError) -> Response:
        return problem(404, str(error.args[0]))

    @app.exception_handler(StoreDown)
    async def down(_: Request, error: StoreDown) -> Response:
        log.error("the store failed: %s", error)
        return problem(503, "the store did not answer, so nothing was counted; try again", headers={"Retry-After": "1"})
