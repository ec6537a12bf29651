"""Features that take part in the engine's stages. The engine names none of them; `core.engine.assembly` makes them."""
