"""Options of OpenAI's API: flags, variables and keys of files."""

from __future__ import annotations

from pydantic import BaseModel, Field


class OpenAIOptions(BaseModel):
    """OpenAI's API."""

    return_tokens_as_token_ids: bool = Field(False, description="Tokens of log-probabilities as token_id:N.")
    tokenizer_info: bool = Field(False, description="Serve the tokenizer's settings at /tokenizer_info.")


class ResponsesOptions(BaseModel):
    """OpenAI's Responses API."""

    response_store: int = Field(
        0, ge=0, description="Responses of /v1/responses that are kept for later; 0 keeps none."
    )
    response_store_bytes: int = Field(64 * 2**20, ge=2**16, description="Memory for responses that are kept.")
