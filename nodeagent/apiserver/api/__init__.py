"""The API over HTTP: paths, content negotiation, streaming of lists and watches, authentication and authorisation.

`request_target` and `request_options` read a path and its parameters; `bodies` reads what clients send; `resource_verbs`
carries out verbs; `watches` streams; `discovery` and `table_output` shape responses; `handler` answers requests that `listener`
accepts; `authorization`, `account_tokens` and `pki` decide who the client is.
"""
