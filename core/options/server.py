"""The HTTP server."""

from __future__ import annotations

from pydantic import Field, field_validator

from core.options.section import OptionsSection


class ServerOptions(OptionsSection):
    """The HTTP server."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    uds: str | None = Field(None, description="Unix socket to listen on instead.")
    api_key: str | None = Field(None, min_length=1, description="Key that requests must carry.")
    admin_api_key: str | None = Field(
        None,
        min_length=1,
        description="Key of the admin routes; without one they serve local clients of a server without keys.",
    )
    allowed_origins: list[str] = Field(
        [], description="Web pages that may call the API from a browser: https://HOST[:PORT], or * for all."
    )
    allowed_methods: list[str] = Field(["*"], description="HTTP methods that these pages may use.")
    allowed_headers: list[str] = Field(["*"], description="Headers that these pages may send.")
    allow_credentials: bool = Field(False, description="Let these pages send cookies and client certificates.")
    ssl_certfile: str | None = Field(
        None, min_length=1, description="Certificate chain in PEM form, maybe with its key: the server speaks https."
    )
    ssl_keyfile: str | None = Field(None, min_length=1, description="The certificate's private key in PEM form.")
    ssl_ca_certs: str | None = Field(
        None, min_length=1, description="Authorities whose certificates clients may bring, in PEM form."
    )
    ssl_cert_reqs: int = Field(
        0, ge=0, le=2, description="Whether clients bring a certificate: 0 no, 1 if they like, 2 they must."
    )
    ssl_ciphers: str | None = Field(
        None, min_length=1, description="Ciphers of TLS 1.2, as OpenSSL lists them; default: Python's."
    )
    enable_ssl_refresh: bool = Field(False, description="Use new certificates as soon as their files change.")
    root_path: str = Field(
        "",
        pattern=r"^/?([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*/?)?$",
        description="Path below which a reverse proxy shows the server, as /llm.",
    )
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="Largest request body.")
    max_sockets: int = Field(1024, ge=0, description="Web sockets that may be open; more are refused with 503.")
    drain_timeout: float = Field(30.0, ge=0, description="Seconds that running requests get after SIGTERM.")
    log_requests: bool = Field(False, description="Log one line per request.")
    public_metrics: bool = Field(False, description="Show /metrics to clients without a key.")
    metrics_compat: str = Field(
        "none",
        description="Show the figures of /metrics a second time, by the names of another server: a plugin's name, as "
        "--route takes them; none: once.",
    )
    strict_fields: bool = Field(False, description="Refuse requests with fields that would be ignored.")
    trust_request_chat_template: bool = Field(False, description="Run chat templates that requests bring along.")
    stream_interval: int = Field(1, ge=1, le=1024, description="Tokens that a stream gathers per event.")

    @field_validator("root_path")
    @classmethod
    def _as_prefix(cls, value: str) -> str:
        """A prefix begins with a slash and ends where the paths of the server begin."""
        return f"/{value.strip('/')}".rstrip("/")
