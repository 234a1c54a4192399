"""HTTP to an API server: which server, how it is trusted, with which credentials, and what each failure means."""
