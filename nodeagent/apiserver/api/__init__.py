"""The machinery over HTTP: paths, content negotiation, streaming of lists and watches, who may do what.

`requests` reads a path and its parameters; `bodies` reads what clients send; `objects` carries out verbs on resources;
`watches` streams; `discovery` and `tables` shape what is sent; `handler` listens; `access`, `account_tokens` and `pki` say who asks.
"""
