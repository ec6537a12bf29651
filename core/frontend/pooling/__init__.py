"""Models that give vectors: what is asked of them, what the engine is sent for it, and what becomes of its vectors."""
