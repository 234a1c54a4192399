"""A storage in etcd (version 3), that several servers share: each follows one watch, and every write is a transaction.

`rpc` speaks gRPC to one member, `messages` knows the encoding of the few messages, `client` chooses among members and says what
became of a call, `watching` follows the changes. `layout` says where kube-apiserver keeps which object, `transactions` what is
asked of etcd for a write, `storage` puts it together.
"""
