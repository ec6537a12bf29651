"""Diagnosis of installed plugins: each is imported in a process of its own, and metadata is held against the source."""
