"""Choosing plugins, and what follows from them: from what the user asked to a frozen engine configuration."""
