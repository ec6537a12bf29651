"""The model and where it comes from."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from core.options.section import OptionsSection

FITTING = -1
"""`max_model_len` that leaves it to core: what fits into the KV cache, at most what the model was made for."""


class ModelOptions(OptionsSection):
    """Which model, and how it is read."""

    model: str | None = Field(
        None, description="Model reference: alias, file, directory or hub id; none: the default model."
    )
    served_model_name: str | None = Field(
        None, min_length=1, description="Name the API answers to; default: the model's own."
    )
    revision: str | None = Field(None, description="Revision of a hub id.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="Compute dtype.")
    max_model_len: int | None = Field(
        None,
        ge=-1,
        description="Longest prompt plus output, in tokens; auto or -1: what fits into the KV cache; "
        "default: the model's own, in `LLM` and `core run` auto.",
    )
    hf_overrides: dict[str, Any] = Field(
        {},
        description="Values that replace those of the model's configuration (config.json); null takes one out. "
        "Repeatable.",
    )
    rope_scaling: dict[str, Any] = Field(
        {}, description="Rotary scaling in place of the model's own: `rope_type` and its parameters, as in config.json."
    )
    chat_template: str | None = Field(
        None, description="Chat template that replaces the model's own: a file, a name (as `chatml`), or its source."
    )
    chat_template_content_format: Literal["auto", "string", "openai"] = Field(
        "auto", description="Message contents as texts or as lists of parts; auto: as the template looks."
    )
    default_chat_template_kwargs: dict[str, Any] = Field(
        {}, description="Variables of the chat template where a request does not set them."
    )
    max_chars_per_token: int | None = Field(
        None,
        ge=0,
        description="Longer texts than this per token are refused before they are tokenised; 0: none are; "
        "default: the longest token of the vocabulary.",
    )
    seed: int = Field(0, description="Seed of unseeded sampling.")
    runner: Literal["auto", "generate", "pooling"] = Field(
        "auto", description="Whether the model generates tokens or gives vectors; auto: what it was made for."
    )
    convert: Literal["auto", "none", "embed"] = Field(
        "auto", description="embed: take embeddings from a model that was made to generate."
    )
    pooling: Literal["auto", "mean", "max", "cls", "last"] = Field(
        "auto", description="How a prompt's hidden states become one vector; auto: as the model's makers did."
    )

    @field_validator("max_model_len")
    @classmethod
    def _not_nothing(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("a context holds a token at least")
        return value


class HubOptions(OptionsSection):
    """Where models come from that are not on this machine yet."""

    hf_token: str | None = Field(
        None,
        min_length=1,
        # It becomes an HTTP header; and a model's id that slipped into its place is refused.
        pattern=r"^[!-.0-~]+$",
        repr=False,
        description="Access token of the model hub; true: the one stored by `hf auth login`; false: none. "
        "HF_TOKEN is used by default, and does not show in a process list.",
    )
    offline: bool = Field(
        False, description="Never ask the hub, take models from its cache; as HF_HUB_OFFLINE=1 in the environment."
    )
    download_dir: str | None = Field(
        None, min_length=1, description="Folder of the hub's cache; default: HF_HUB_CACHE, or `hub` in HF_HOME."
    )

    @field_validator("hf_token", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """In a file and in Python, `true` is no text."""
        return str(value).lower() if isinstance(value, bool) else value
