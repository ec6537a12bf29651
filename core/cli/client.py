"""Talking to an OpenAI-compatible server, synchronously, for `core chat` and `core complete`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from core.api.errors import ConfigError, CoreError
from core.cli.sse import DONE, EventDecoder

_LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True)
class StreamedDelta:
    """Content of one event of a stream.

    Attributes:
        text, reasoning: New text of the answer, and of what the model thinks before it.
        finish_reason: Why the answer ended, in its last event.
        tokens, prompt_tokens: How many were generated and read, in the end, if the server says it.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None


class Client:
    """A connection to one server.

    Args:
        url: Base URL, with or without `/v1` at the end.
        api_key: Sent as a bearer token when given.
        model: Name of the model; None asks the server for its first one.
        verify: How the certificate of an https server is checked (see `trust`).
        place: What a user is told about where the server is; default: its address.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        transport: httpx.BaseTransport | None = None,
        verify: ssl.SSLContext | bool = True,
        place: str | None = None,
    ) -> None:
        root = server_root(url)
        self.url, self.place = f"{root}/v1", root if place is None else place
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(10.0, read=None)
        self._http = httpx.Client(headers=headers, timeout=timeout, transport=transport, verify=verify)
        self._model = model

    @property
    def model(self) -> str:
        """The model that requests name."""
        if self._model is None:
            self._model = self._first_model()
        return self._model

    def chat(self, messages: list[dict[str, str]], params: dict[str, Any]) -> Iterator[StreamedDelta]:
        """Stream the answer to a conversation."""
        return self._stream("chat/completions", {"messages": messages, **params})

    def complete(self, prompt: str, params: dict[str, Any]) -> Iterator[StreamedDelta]:
        """Stream the continuation of a text."""
        return self._stream("completions", {"prompt": prompt, **params})

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _first_model(self) -> str:
        try:
            response = self._http.get(f"{self.url}/models")
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        self._check(response)
        try:
            return str(response.json()["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise CoreError(
                "CORE-S192", f"{self.url}/models lists no model.", hint="Check --url, or give --model-name."
            ) from None

    def _stream(self, path: str, body: dict[str, Any]) -> Iterator[StreamedDelta]:
        body = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}, **body}
        try:
            with self._http.stream("POST", f"{self.url}/{path}", json=body) as response:
                if response.status_code != 200:
                    response.read()
                self._check(response)
                yield from self._deltas(response)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _deltas(self, response: httpx.Response) -> Iterator[StreamedDelta]:
        decoder = EventDecoder()
        for chunk in response.iter_bytes():
            for event in decoder.feed(chunk):
                if event != DONE:
                    yield self._delta(event)

    def _delta(self, event: bytes) -> StreamedDelta:
        try:
            data = orjson.loads(event)
        except ValueError:
            raise CoreError("CORE-S192", f"{self.url} sent an event that is not JSON: {event[:80]!r}.") from None
        if not isinstance(data, dict) or "error" in data:
            raise CoreError("CORE-S191", f"the server stopped with an error: {error_text(data)}.")
        choice = (data.get("choices") or [{}])[0]
        delta, usage = choice.get("delta") or {}, data.get("usage") or {}
        return StreamedDelta(
            text=choice.get("text") or delta.get("content") or "",
            reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
            finish_reason=choice.get("finish_reason"),
            tokens=usage.get("completion_tokens"),
            prompt_tokens=usage.get("prompt_tokens"),
        )

    def _check(self, response: httpx.Response) -> None:
        if response.status_code == 200:
            return
        try:
            reason = error_text(orjson.loads(response.content))
        except ValueError:
            reason = response.text[:_LONGEST_ERROR]
        hint = "Give --api-key." if response.status_code in (401, 403) else ""
        raise CoreError("CORE-S191", f"{response.url} answered {response.status_code}: {reason}.", hint=hint)

    def _unreachable(self, error: httpx.HTTPError) -> CoreError:
        reason = str(error) or type(error).__name__
        hint = "Start a server with `core serve`, or give --url; --local MODEL needs none."
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            hint = "Give the certificate of the authority that signed the server's with --ca FILE."
        return CoreError("CORE-S190", f"no answer from {self.url}: {reason}.", hint=hint)


SOCKET = "unix:"
"""Begins the address of a server on a Unix socket; its path follows."""

SOCKET_HOST = "http://localhost"
"""Host name in requests over a Unix socket."""


def connect(url: str, *, api_key: str | None, model: str | None, verify: ssl.SSLContext | bool) -> Client:
    """Return a client of the server at `http://HOST:PORT`, or at `unix:PATH`. Raises as `server_root`."""
    if not url.startswith(SOCKET):
        return Client(url, api_key=api_key, model=model, verify=verify)
    transport = httpx.HTTPTransport(uds=url.removeprefix(SOCKET))
    return Client(SOCKET_HOST, api_key=api_key, model=model, transport=transport, place=url)


def trust(ca: str | None) -> ssl.SSLContext | bool:
    """Return how servers' certificates are checked: by the authorities of a PEM file, or the usual ones.

    The usual ones are those of the file that `SSL_CERT_FILE` names, if there is such a variable.

    Raises:
        ConfigError: CORE-C187, the file cannot be used.
    """
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # which OpenSSL's own errors are, too
        why = "it holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError("CORE-C187", f"--ca {ca!r} cannot be used: {why}.") from None


def server_root(url: str, flag: str = "--url") -> str:
    """Return a server's address without `/v1`, which users may give or leave out.

    Args:
        flag: What brought it.

    Raises:
        ConfigError: CORE-C183, it is no address.
    """
    root = url.rstrip("/").removesuffix("/v1").rstrip("/")
    if not re.match(r"https?://[^/\s]+", root):
        raise ConfigError(
            "CORE-C183", f"{flag} {url!r} is no address of a server.", hint="Example: http://127.0.0.1:8000"
        )
    return root


def error_text(data: Any) -> str:
    """Return the message of an error body, whichever of the usual forms it has."""
    error = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return str(error)[:_LONGEST_ERROR].rstrip(".")
