"""Compiling grammars beside the engine's loop: threads, child processes that can be killed, and a cache."""
