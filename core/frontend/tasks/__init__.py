"""Tasks that are plugins: requests in flight, and the calls that their front halves make work of."""
