"""HTTP to an API server: which one, trusted how, as whom, and what each failure means."""
