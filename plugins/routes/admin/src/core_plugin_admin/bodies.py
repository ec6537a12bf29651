"""Requests of admin routes: fields from the query and the body alike, and none that means nothing."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from core.api import PauseMode, RouteRequest
from core.api.bodies import up_to
from core.api.operator import RECENT_LINES

MAX_IDS = 4096
MAX_BODY = 2**20


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


async def read_admin(request: RouteRequest, kind: type[A]) -> A:
    """Return the fields of the query and of the body, if there is one. Raises what is answered with a 4xx."""
    headers, fields = request.headers, dict[str, Any](request.query)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        fields |= await request.json(typed=True, limit=MAX_BODY)
    return kind.model_validate(fields)
