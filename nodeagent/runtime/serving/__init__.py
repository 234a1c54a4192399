"""What all HTTP listeners of this project share: which connections may stay, how long and how large the head of a request may be,
and which pages may call.

The agent's listeners (`runtime.serving.http`) and the API server's (`apiserver.api.listener`) are built on it.
"""
