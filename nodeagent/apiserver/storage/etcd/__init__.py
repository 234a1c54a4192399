"""A storage in etcd (version 3) that several servers share: each follows one watch, and every write is a transaction.

`rpc` speaks gRPC to one member, `etcd_messages` encodes the few messages, `cluster_client` chooses among members and classifies
failed calls, `watching` follows the changes. `layout` defines the keys, which are kube-apiserver's, `transactions` the request
of a write, and `storage` combines them.
"""
