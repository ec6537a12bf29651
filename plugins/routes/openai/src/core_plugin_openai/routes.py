"""The routes of OpenAI's API but for responses, and those beside them that clients of other servers know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from core.api import EngineClient, Reply, RequestError, RouteRegistry, RouteRequest, RouteResponse
from core.api.bodies import SamplingBody
from core_plugin_openai.chat import chat_job, chat_request
from core_plugin_openai.completions import completion_job, completion_request
from core_plugin_openai.params import check_stream
from core_plugin_openai.protocol import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from core_plugin_openai.tokenize import detokenize, tokenize, tokenizer_info

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"


class OpenAIRoutes:
    """The routes and the engine that they ask."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._client: EngineClient

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes."""
        registry.add("POST", CHAT, self.chat, body=ChatBody, generates=True)
        registry.add("POST", COMPLETIONS, self.completions, body=CompletionBody, generates=True)
        registry.add("POST", "/apply-template", self.apply_template, body=ChatBody, generates=True)
        registry.add("POST", f"{CHAT}/render", self.render_chat, body=ChatBody, generates=True)
        registry.add("POST", f"{COMPLETIONS}/render", self.render_completion, body=CompletionBody, generates=True)
        registry.add("GET", MODELS, self.models)
        registry.add("GET", f"{MODELS}/{{model:path}}", self.model)
        registry.add("POST", "/tokenize", self.tokenize, body=TokenizeBody)
        registry.add("POST", "/detokenize", self.detokenize, body=DetokenizeBody)
        registry.add("GET", "/tokenizer_info", self.tokenizer_info)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        self._client = client

    async def chat(self, request: RouteRequest) -> Reply:
        """Answer a conversation."""
        body, fields = await request.read(ChatBody)
        check_stream(body)
        job, headers = await chat_job(self._client, body, fields)
        return Reply(job, bool(body.stream), headers)

    async def completions(self, request: RouteRequest) -> Reply:
        """Continue prompts."""
        body, fields = await request.read(CompletionBody)
        check_stream(body)
        job, headers = await completion_job(self._client, body, fields)
        return Reply(job, bool(body.stream), headers)

    async def apply_template(self, request: RouteRequest) -> RouteResponse:
        """Return a conversation as the text that the model reads."""
        body, fields = await request.read(ChatBody)
        (shown,) = await self._client.describe(chat_request(self._client, body, fields))
        return self._told({"prompt": shown["prompt"]}, body, fields)

    async def render_chat(self, request: RouteRequest) -> RouteResponse:
        """Return a chat request's prompt, token ids and sampling parameters."""
        body, fields = await request.read(ChatBody)
        asked = chat_request(self._client, body, fields)
        (shown,) = await self._client.describe(asked, offsets=bool(body.return_token_offsets))
        return self._told(shown, body, fields)

    async def render_completion(self, request: RouteRequest) -> RouteResponse:
        """Return the same for every prompt of a completion request."""
        body, fields = await request.read(CompletionBody)
        asked = completion_request(self._client, body, fields)
        shown = await self._client.describe(asked, offsets=bool(body.return_token_offsets))
        return self._told(shown, body, fields)

    async def models(self, request: RouteRequest) -> RouteResponse:
        """Return all models: one."""
        return json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: RouteRequest) -> RouteResponse:
        """Return a model by its id, which may contain slashes."""
        self._client.check_model(request.path_params["model"])
        return json_response(self._card())

    async def tokenize(self, request: RouteRequest) -> RouteResponse:
        """Return the token ids of a text or a rendered conversation."""
        body, fields = await request.read(TokenizeBody)
        return self._told(await tokenize(self._client, body), body, fields)

    async def detokenize(self, request: RouteRequest) -> RouteResponse:
        """Return the text of token ids, special tokens included."""
        body, fields = await request.read(DetokenizeBody)
        return self._told(await detokenize(self._client, body), body, fields)

    async def tokenizer_info(self, request: RouteRequest) -> RouteResponse:
        """Return the tokenizer's settings, where the server may show them."""
        if not self._client.settings["tokenizer_info"]:
            message = "The tokenizer's settings are not shown: start the server with --tokenizer-info."
            raise RequestError(message, code="tokenizer_info_off", status=404)
        return json_response(tokenizer_info(self._client))

    def _card(self) -> dict[str, Any]:
        client = self._client
        return {
            "id": client.model_name,
            "object": "model",
            "created": client.created,
            "owned_by": "core",
            "max_model_len": client.max_model_len,
        }

    def _told(
        self,
        answer: Any,
        body: ChatBody | CompletionBody | TokenizeBody | DetokenizeBody,
        fields: Mapping[str, Any],
    ) -> RouteResponse:
        """Return an answer, and which fields of the body had no effect."""
        further = self._client.plugin_fields if isinstance(body, SamplingBody) else ()
        return json_response(answer, self._client.unread(fields, {*type(body).model_fields, *further}))


def json_response(answer: Any, headers: Mapping[str, str] | None = None) -> RouteResponse:
    """Return plain data as JSON."""
    return RouteResponse(orjson.dumps(answer), headers=headers or {})
