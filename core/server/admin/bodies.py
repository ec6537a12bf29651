"""Requests of admin routes: fields from the query and the body alike, and none that means nothing."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from core.api.bodies import up_to
from core.api.errors import CheckpointError, ConfigError, CoreError
from core.frontend.pausing import PauseMode
from core.logs import RECENT_LINES
from core.server.body import read_object
from core.server.errors import ApiError

MAX_IDS = 4096
MAX_BODY = 2**20
NO_TRANSFER = "CORE-E123"


class AdminBody(BaseModel):
    """Fields of an admin route; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class PauseBody(AdminBody):
    """`POST /pause`."""

    mode: PauseMode = "abort"
    clear_cache: bool = True


class AbortBody(AdminBody):
    """`POST /abort_requests`: ids as the answers have them, or all."""

    request_ids: Annotated[list[str], up_to(MAX_IDS)] = []
    abort_all: bool = False


class LogBody(AdminBody):
    """`GET /server_log`: how many lines, the newest ones."""

    lines: Annotated[int, Field(ge=1, le=RECENT_LINES)] = 200


class InitBody(AdminBody):
    """`POST /init_weight_transfer_engine`."""

    init_info: dict[str, Any] = {}


class StartBody(AdminBody):
    """`POST /start_weight_update`."""

    is_checkpoint_format: bool = True


class UpdateBody(AdminBody):
    """`POST /update_weights`: what the weight-transfer engine needs to know; for `disk`, `path` and `version`."""

    update_info: dict[str, Any]


class FromDiskBody(AdminBody):
    """`POST /update_weights_from_disk`: a whole update at once."""

    model_path: str
    weight_version: str | None = None


A = TypeVar("A", bound=AdminBody)


async def read_admin(request: Request, kind: type[A]) -> A:
    """Return the fields of the query and of the body, if there is one. Raises `ApiError`, `ValidationError`."""
    headers = request.headers
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    fields: dict[str, Any] = dict(request.query_params)
    if not empty:
        fields |= await read_object(request, MAX_BODY)
    return kind.model_validate(fields)


def told(error: CoreError) -> CoreError | ApiError:
    """Return what an admin is told of a failed call: whose mistake it was, and the sentence."""
    if error.code == NO_TRANSFER:
        return ApiError(501, f"{error.message} {error.hint}".strip(), code="not_implemented")
    if isinstance(error, (CheckpointError, ConfigError)):
        return ApiError(400, error.message, code=error.code)
    return error
