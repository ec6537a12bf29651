"""The attention backend."""
