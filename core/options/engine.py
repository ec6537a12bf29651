"""Memory, scheduling, threads and processes of the engine."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from core.options.section import OptionsSection


class KVOptions(OptionsSection):
    """The paged KV cache."""

    kv_memory: str | None = Field(None, description="KV cache size: 2GiB, 512MiB or bytes.")
    memory_fraction: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Fraction of free memory for the KV cache when no size is given; on a device with memory of its "
        "own (default there: the platform's) of all its memory, which weights and steps share with the cache.",
    )
    block_size: int | None = Field(None, ge=1, le=1024, description="Tokens per KV block; default: the platform's.")
    num_blocks: int | None = Field(None, ge=2, description="Exact number of KV blocks; overrides the memory options.")
    kv_dtype: Literal[
        "auto", "float32", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "float8_e4m3fn", "float8_e5m2"
    ] = Field(
        "auto",
        description="Dtype of the KV cache; auto: as the checkpoint's kv_cache_scheme says, else the model's dtype; "
        "fp8 is fp8_e4m3.",
    )
    prefix_caching: bool = Field(True, description="Share the KV blocks of equal prefixes.")
    state_interval: int = Field(
        512,
        ge=1,
        description="Tokens from one snapshot of a request's recurrent states to the next, rounded up to whole blocks: "
        "where prefix hits of models with such states end.",
    )
    state_snapshots: int | None = Field(
        None,
        ge=0,
        description="Snapshots of recurrent states; default: one for each interval that the cache holds.",
    )
    hash_seed: str | None = Field(
        None, description="Secret text that makes block hashes equal in every start, for KV stores that outlive it."
    )

    def concrete_dtype(self, dtype: str, demanded: str | None = None) -> str:
        """Return the dtype of the cache as attention backends name it, given the compute dtype.

        Args:
            demanded: What the checkpoint asks for, if anything.
        """
        e4m3, e5m2 = "float8_e4m3fn", "float8_e5m2"
        named = {"auto": demanded or dtype, "fp8": e4m3, "fp8_e4m3": e4m3, "fp8_e5m2": e5m2}
        return named.get(self.kv_dtype, self.kv_dtype)


class SchedulerOptions(OptionsSection):
    """How steps are filled."""

    max_num_seqs: int = Field(256, ge=1, le=16384, description="Requests that may run at once.")
    max_num_batched_tokens: int | None = Field(
        None, ge=1, description="Token budget of a step; default: the platform's."
    )
    max_chunk: int | None = Field(None, ge=1, description="Most prompt tokens of one request in a step.")
    max_itl_ms: float = Field(
        200.0,
        ge=0,
        le=60000,
        description="Milliseconds that a step may take while requests are being answered; prompts run in chunks that "
        "fit. 0: any. Off in `LLM` and, unless set, in `core run-batch`.",
    )
    overlap_depth: int = Field(1, ge=0, le=4, description="Steps launched ahead of the one being settled.")
    draft_tokens: int = Field(
        4, ge=1, le=64, description="Most tokens that the drafter guesses for a request in a step (`--drafter`)."
    )
    max_waiting: int = Field(4096, ge=1, description="Requests that may wait; more are refused with 503.")


class RuntimeOptions(OptionsSection):
    """Threads and processes."""

    threads: int | None = Field(None, ge=1, description="Compute threads; default: physical cores.")
    threads_bind: str = Field(
        "auto",
        pattern=r"^(auto|none|\d+(-\d+)?(,\d+(-\d+)?)*)$",
        description="Processors for the compute threads: 0-3,8-11; auto: one memory node; none: any.",
    )
    graphs: Literal["auto", "none", "decode", "full"] = Field(
        "auto",
        description="Which steps run by the platform's graphs: none; decode: those of one token a row; full: also "
        "those with prompts of a few tokens; auto: decode where graphs are captured at the start, else full.",
    )
    compile: bool = Field(
        False, description="Compile what the model does between its attention layers; a plugin carries it out."
    )
    start_timeout: float = Field(600.0, gt=0, description="Seconds the engine may take to start.")
    engine_restarts: int = Field(
        3, ge=0, le=1000, description="Restarts of a dead engine within ten minutes; more end the server; 0: none."
    )
    engine_hang_timeout: float = Field(
        300.0, ge=0, description="Seconds after which an engine that does not move is ended; 0: never."
    )
    plugin_options: dict[str, dict[str, Any]] = Field({}, description="Options of plugins: name -> key -> value.")
