"""Tests for core and its plugins: the conformance kit, tiny models, an engine of arithmetic, a fake device."""
