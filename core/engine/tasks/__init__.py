"""Tasks, their engine halves: what an engine does for its requests. `core.tasks` finds them."""
