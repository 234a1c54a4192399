"""What can be computed from the schema of a kind alone: patches, field ownership, OpenAPI, protobuf. Pure.

`strategic` and `json_patch` apply patches; `fieldsets` computes which fields a manager owns; `protobuf` and `protobuf_writing`
read and write objects; `openapi` publishes the schemas, `gnostic` in the encoding that old clients need. The schemas themselves
are in `kinds/description`.
"""
