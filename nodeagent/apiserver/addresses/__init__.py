"""Which addresses and ports services can have, and who holds which."""
