"""What all HTTP listeners of this project share: which connections may stay, limits of the time and size of a request's head,
and which pages may call.

The agent's listeners (`runtime.serving.http`) and the API server's (`apiserver.api.listener`) are built on it.
"""
