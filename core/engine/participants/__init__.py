"""Features that take part in the engine's stages. The engine names none of them; `core.engine.assembly` makes them."""

STRUCTURED = "structured_output"
"""Name of the participant that drives grammars, under which its parts travel."""
