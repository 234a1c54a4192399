"""The addresses and ports that Services can have, and the holder of each."""
