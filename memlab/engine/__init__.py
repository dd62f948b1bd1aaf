"""Run plans: measured here or in a worker process. `client` and what it imports load no torch."""
