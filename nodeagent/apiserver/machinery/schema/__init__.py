"""The shapes of the kinds this server has, and what follows from a shape alone. Pure.

`shapes` says what a field is; `notation` reads the compact text in which the kinds write them down, `shared` what several are made of;
`decoding` turns a client's document into canonical form; `strategic` merges patches; `fieldsets` computes who owns
which field; `openapi` publishes it all, `gnostic` in the encoding old clients ask for.
"""
