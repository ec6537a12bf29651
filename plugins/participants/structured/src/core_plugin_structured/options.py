"""Options of structured output: flags, variables and keys of files."""

from __future__ import annotations

from pydantic import BaseModel, Field


class StructuredOptions(BaseModel):
    """Structured output: how schemas are read, and what compiling a grammar may cost."""

    additional_properties: bool = Field(
        False,
        description="Objects whose schema names properties and says nothing of further ones may have further ones; "
        "by default they may not.",
    )
    grammar_timeout: float = Field(10.0, gt=0, le=600, description="Seconds that one grammar may take to be compiled.")
    grammar_workers: int = Field(2, ge=1, le=64, description="Grammars that are compiled at once.")
    grammar_memory_mib: int = Field(1024, ge=64, description="Memory in MiB that compiling one grammar may take.")
    grammar_cache_mib: int = Field(256, ge=0, description="Memory in MiB for compiled grammars that are kept.")
