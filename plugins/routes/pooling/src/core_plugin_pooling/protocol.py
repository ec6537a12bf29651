"""Request bodies of the pooling routes. Types are strict; ranges of pooling parameters are the engine's affair."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from core.api import MAX_PROMPTS
from core.api.bodies import MAX_MESSAGES, Body, BodyPart, Priority, Salt, up_to
from core_plugin_pooling.encoding import EmbedDType, EncodingFormat, Endianness

Texts = Annotated[list[str], up_to(MAX_PROMPTS, 1)]

_PARAMS = ("dimensions", "normalize", "use_activation", "truncate_prompt_tokens", "prompt_name")


class TreatedBody(Body):
    """How a request is treated."""

    priority: Priority | None = None
    cache_salt: Salt | None = None
    user: str | None = None

    def treatment(self) -> dict[str, Any]:
        """Return the fields of a `PoolRequest` that say so."""
        return {"priority": self.priority or 0, "cache_salt": self.cache_salt, "user": self.user}


class PoolBody(TreatedBody):
    """Fields that the pooling routes share; pooling parameters have their names."""

    truncate_prompt_tokens: int | None = None

    def params(self) -> dict[str, Any]:
        """Return the pooling parameters of every prompt."""
        return {name: getattr(self, name) for name in _PARAMS if name in type(self).model_fields}


class InputBody(PoolBody):
    """Prompts: a text, a list of texts, token ids, or a list of token-id lists; or a conversation as one prompt."""

    input: Any = None
    messages: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None


class VectorBody(InputBody):
    """How vectors are written."""

    encoding_format: EncodingFormat | None = None
    embed_dtype: EmbedDType | None = None
    endianness: Endianness | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    prompt_name: str | None = None


class EmbeddingBody(VectorBody):
    """`POST /v1/embeddings`."""


class PoolingBody(VectorBody):
    """`POST /pooling`: what the model gives for a task; without one, what it was made for.

    `data` is for the model's I/O processor.
    """

    data: Any = None
    task: Literal["embed", "token_embed", "classify", "token_classify"] | None = None
    use_activation: bool | None = None


class ClassifyBody(InputBody):
    """`POST /classify`."""

    use_activation: bool | None = None


class ScoreBody(PoolBody):
    """`POST /score`: two sides under one of three pairs of names."""

    text_1: str | Texts | None = None
    text_2: str | Texts | None = None
    queries: str | Texts | None = None
    documents: str | Texts | None = None
    data_1: str | Texts | None = None
    data_2: str | Texts | None = None
    use_activation: bool | None = None


class Document(BodyPart):
    """A document as an object."""

    text: str


class RerankBody(PoolBody):
    """`POST /rerank`."""

    query: str
    documents: Annotated[list[str | Document], up_to(MAX_PROMPTS, 1)]
    top_n: Annotated[int, Field(ge=0)] | None = None
    return_documents: bool | None = None
    use_activation: bool | None = None


class CohereBody(TreatedBody):
    """`POST /v2/embed`."""

    texts: Texts
    input_type: str | None = None
    embedding_types: Annotated[list[Literal["float", "base64", "binary", "ubinary"]], up_to(4, 1)] | None = None
    output_dimension: int | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    truncate: Literal["NONE", "END"] | None = None
