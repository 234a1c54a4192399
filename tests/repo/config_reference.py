"""Writes docs/config.md from the types, so that it cannot differ from the program.

Regenerate with ``.venv/bin/python -m tests.repo.config_reference > docs/config.md``; a test compares the two.
"""

from collections.abc import Iterator
from itertools import groupby

from nodeagent.config.environment import CONFIG_VARIABLE
from nodeagent.config.files import CONFIG_MAP_KEY
from nodeagent.config.flags import FLAGS, IGNORED_FLAGS
from nodeagent.config.keys import KEYS, Key, groups, plain_option
from nodeagent.config.kube_proxy_fields import KUBE_PROXY_API_VERSION, KUBE_PROXY_FIELDS, KUBE_PROXY_KIND
from nodeagent.config.options import API_VERSION, KIND

EXAMPLE = f"""\
apiVersion: {API_VERSION}
kind: {KIND}
source:
  kubeconfig: /etc/nodeagent/kubeconfig
traffic:
  clusterCIDRs: [10.244.0.0/16, "fd00:10:244::/56"]
  nodePortAddresses: [primary, 192.0.2.0/24]
dataplane:
  minSyncPeriod: 100ms
reporting:
  healthzBindAddress: 0.0.0.0:10256
logging:
  format: json
"""

_HEAD = f"""\
# Configuration

<!-- Generated from nodeagent/config by tests/repo/config_reference.py; do not edit. -->

Every option can be set in a file, in an environment variable and, mostly, with a flag. A flag wins over the
environment, the environment over the file, the file over the default. A wrong value is always an error,
even if another layer overrides it. All errors are reported at once, one line each:

    svc.yaml:12: traffic.clusterCIDRs: '10.0.0.0/33' is not a CIDR (an address, a slash and a prefix length, like 10.0.0.0/8)

- `nodeagent config show` prints every value and where it comes from, as a file that can be used again (`-o json` for
  programs).
- `nodeagent config check` reports whether a configuration can be used on this machine: exit code 0, or 2 with the errors.
  Files and directories that it names must exist. A value that can be used but is probably a mistake is a `warning:`.

## Files

`--config FILE` (or the environment variable `{CONFIG_VARIABLE}`) names a YAML or JSON file of one of these types:

- `apiVersion: {API_VERSION}`, `kind: {KIND}`: the options below.
- `apiVersion: {KUBE_PROXY_API_VERSION}`, `kind: {KUBE_PROXY_KIND}`: kube-proxy's file, unchanged.
- `apiVersion: v1`, `kind: ConfigMap` with one of these under the key `{CONFIG_MAP_KEY}`, as kubeadm keeps it.

Unknown keys and repeated keys are errors. `null` is the same as omitting the key.

```yaml
{EXAMPLE}```

Durations are written as Go writes them: numbers with a unit, `ns`, `us`, `ms`, `s`, `m` or `h`, in a row (`1h30m`,
`250ms`, `0s`). Lists are written with commas in flags and environment variables (`10.0.0.0/8,fd00::/8`).

## Options
"""

_KUBE_PROXY_HEAD = f"""\
## kube-proxy's file

A `{KUBE_PROXY_KIND}` of Kubernetes 1.36 (or older) is accepted unchanged. A zero value (`""`, `0`, `0s`, `false`, `[]`,
and `null`) means "not set", as kube-proxy reads it; in fields marked with `*` only `null` does. Fields without effect are
listed at start and by `config show` if their value is not the default.

- `iptables.masqueradeAll` applies unless `mode` is `nftables`, where kube-proxy does not read it;
  `nftables.masqueradeAll` always does.
- Of `featureGates`, `AllowServiceExternalIPs` becomes `traffic.externalIPs`; the others have no effect.
- With an IPv6 `bindAddress` the servers listen on `[::]:10256` and `[::1]:10249` unless configured otherwise.
- `clusterCIDR` is one CIDR or two of different families; our own `traffic.clusterCIDRs` may be longer.
- `logging.verbosity` 4 and more is level `debug`, less is `info`.
- Without `nodePortAddresses`, node ports answer at the node's primary addresses, as in kube-proxy's nftables mode; in
  its other modes they answer at every address. The keyword `localhost` is ignored beside other entries.

| Field | Becomes |
|---|---|
"""

_NO_EFFECT_HEAD = """\

| Field without effect | Because |
|---|---|
"""

_FLAGS_HEAD = """\

## kube-proxy's flags

kube-proxy's flags that have a meaning here are in the tables above. They override the file, whereas kube-proxy ignores
most of its flags when it has one. The flags below are accepted but have no effect; a value other than the default is
listed at start.

| Flag without effect | Because |
|---|---|
"""


def render_reference() -> str:
    """Returns the text of docs/config.md."""
    fields = KUBE_PROXY_FIELDS.values()
    return "".join(
        [
            _HEAD,
            *(_group(name, group.__doc__ or "") for name, group in groups()),
            "\n",
            _KUBE_PROXY_HEAD,
            *(f"| `{field.path}`{'*' * field.pointer} | `{field.becomes}` |\n" for field in fields if field.becomes),
            _NO_EFFECT_HEAD,
            *_merged_rows((field.path, field.reason) for field in fields if not field.becomes),
            _FLAGS_HEAD,
            *_merged_rows((flag.name, flag.reason) for flag in IGNORED_FLAGS.values()),
        ]
    )


def _group(name: str, doc: str) -> str:
    paragraph = " ".join(doc.split())
    head = f"\n### {name}\n\n{paragraph}\n\n| Key | Default | Unit or values | Meaning | Flag, variable |\n|---|---|---|---|---|\n"
    return head + "".join(_row(key) for key in KEYS.values() if key.group == name)


def _row(key: Key) -> str:
    default = "the host name" if key.required else _default(plain_option(key, key.default))
    flags = [
        f"`{spelling}`" for flag in FLAGS.values() if flag.path == key.path for spelling in (flag.name, *flag.spellings)
    ]
    where = " ".join([*flags, f"`{key.environment_variable}`"])
    return f"| `{key.name}` | {default} | {key.unit} | {key.description} | {where} |\n"


def _default(value: object) -> str:
    match value:
        case None:
            return "unset"
        case bool():
            return f"`{str(value).lower()}`"
        case list():
            return f"`[{', '.join(map(str, value))}]`"
        case _:
            return f"`{value}`"


def _merged_rows(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Yields rows of a table; neighbours with the same reason are merged."""
    for reason, same in groupby(rows, key=lambda row: row[1]):
        yield f"| {', '.join(f'`{name}`' for name, _ in same)} | {reason} |\n"


if __name__ == "__main__":
    print(render_reference(), end="")
