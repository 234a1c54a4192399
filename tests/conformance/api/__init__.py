"""Our API server under Kubernetes' own API tests, with a real kube-controller-manager beside it.

`KUBERNETES=DIR python -m tests.conformance.api` runs them and writes docs/conformance-api.md. `specs.yaml` says of each spec
whether it passes, or why it is not for this server.
"""
