"""Tasks, their engine halves: what an engine does for its requests. `halves` finds them."""
