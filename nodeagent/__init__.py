"""nodeagent: a node-local service proxy for Linux.

    cli/                                          commands, one file each
    daemon/   config/                             the agent put together, its process, its options
    diagnosis/                 lab/               why is it so?   clusters on this machine
    proxy/    apiserver/    names/                three houses; none imports another
    runtime/  wire/         kinds/                what programs share; bytes; what API objects are
    model/                                        values

An import points down. File = noun or decision. docs/architecture.md says where each thing is decided.
"""

__version__ = "0.1.0"
