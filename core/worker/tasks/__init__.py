"""Tasks, their worker halves: which runner executes steps. `halves` finds them."""
