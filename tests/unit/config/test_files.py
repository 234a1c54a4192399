"""Files: which are taken, and the line and words of every error."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.config_problems import ConfigError
from nodeagent.config.files import read_text
from nodeagent.config.load import LoadedConfig, load_config

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., list[str]]


def test_all_problems_of_a_file_are_reported_at_their_lines(own: Load, refused: Refuse) -> None:
    lines = refused(
        own,
        """\
        traffic:
          clusterCIDRs:
            - 10.0.0.0/8
            - 10.0.0.0/33
          masqueradAll: true
          nodePortAddresses: [localhost]
        dataplane:
          minSyncPeriod: 10
        """,
    )
    assert lines == [
        "svc.yaml:6: traffic.clusterCIDRs: '10.0.0.0/33' is not a CIDR (an address, a slash and a prefix length, like 10.0.0.0/8)",
        "svc.yaml:7: traffic.masqueradAll: unknown key; did you mean traffic.masqueradeAll?",
        "svc.yaml:8: traffic.nodePortAddresses: 'localhost' is not supported: node ports are never answered on loopback addresses",
        "svc.yaml:10: dataplane.minSyncPeriod: must be a duration like 30s or 1h30m, not 10",
    ]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        pytest.param("colour: red", "svc.yaml:3: colour: unknown key", id="unknown"),
        pytest.param(
            "masqueradeAll: true",
            "svc.yaml:3: masqueradeAll: unknown key; did you mean traffic.masqueradeAll?",
            id="without its group",
        ),
        pytest.param("trafic: {}", "svc.yaml:3: trafic: unknown key; did you mean traffic?", id="group misspelt"),
        pytest.param(
            "dataplane:\n  masqueradeall: true",
            "svc.yaml:4: dataplane.masqueradeall: unknown key; did you mean traffic.masqueradeAll?",
            id="in another group",
        ),
        pytest.param("traffic: []", "svc.yaml:3: traffic: must be a mapping, not []", id="group is a list"),
        pytest.param(
            "logging:\n  level: info\n\n  level: debug",
            "svc.yaml:6: logging.level: already set at line 4",
            id="twice",
        ),
        pytest.param("logging: &a\n  level: *a", "svc.yaml:4: logging.level: refers to itself", id="recursive alias"),
        pytest.param("[a]: b", "svc.yaml:3: has a key that is not text", id="key is a list"),
        pytest.param(
            "logging:\n  level: !!int x",
            "svc.yaml:4: logging.level: cannot be read: 'x' is not what its tag tag:yaml.org,2002:int says",
            id="value contradicts its tag",
        ),
        pytest.param(
            "logging:\n  level: !mine x",
            "svc.yaml:4: logging.level: cannot be read: the tag !mine is not supported",
            id="unknown tag",
        ),
    ],
)
def test_one_problem(own: Load, refused: Refuse, body: str, line: str) -> None:
    assert refused(own, body + "\n") == [line]


TYPES = (
    "it must be nodeagent.io/v1alpha1 NodeAgentConfiguration, "
    "kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration or a v1 ConfigMap with config.conf"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("", "svc.yaml:1: is empty", id="empty"),
        pytest.param("# nothing\n---\n", "svc.yaml:1: is empty", id="only a comment"),
        pytest.param("just text\n", "svc.yaml:1: must be a mapping with apiVersion and kind", id="text"),
        pytest.param("\n- a\n", "svc.yaml:2: must be a mapping with apiVersion and kind", id="list"),
        pytest.param(
            "traffic: {}\n",
            f"svc.yaml:1: apiVersion: this is no apiVersion, no kind; {TYPES}",
            id="no type",
        ),
        pytest.param(
            "kind: Pod\napiVersion: v1\n", f"svc.yaml:2: apiVersion: this is v1, Pod; {TYPES}", id="another type"
        ),
        pytest.param(
            "apiVersion: nodeagent.io/v1alpha1\nkind: KubeProxyConfiguration\n",
            f"svc.yaml:2: kind: this is nodeagent.io/v1alpha1, KubeProxyConfiguration; {TYPES}",
            id="another kind",
        ),
        pytest.param(
            "apiVersion: nodeagent.io/v1\nkind: NodeAgentConfiguration\n",
            f"svc.yaml:1: apiVersion: this is nodeagent.io/v1, NodeAgentConfiguration; {TYPES}",
            id="another version",
        ),
        pytest.param(
            "a: 1\nb: [1,\nc: 2\n",
            "svc.yaml:3: not valid YAML: did not find expected ',' or ']'",
            id="unclosed list",
        ),
        pytest.param(
            "a: 1\n\tb: 2\n",
            "svc.yaml:2: not valid YAML: found a tab character that violates indentation",
            id="tab",
        ),
        pytest.param(
            "a: 1\n---\nb: 2\n",
            "svc.yaml:3: a second document begins here; a configuration is one document",
            id="two documents",
        ),
        pytest.param(
            "a: \x01\n",
            "svc.yaml:1: not valid YAML: control characters are not allowed (character 1)",
            id="control character",
        ),
        pytest.param("[" * 3000, "svc.yaml:1: not valid YAML: nested too deeply", id="deep"),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\n", "svc.yaml:1: data: has no text under the key config.conf", id="no data"
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  other: x\n",
            "svc.yaml:3: data: has no text under the key config.conf",
            id="no config.conf",
        ),
    ],
)
def test_not_a_configuration(load: Load, refused: Refuse, text: str, line: str) -> None:
    assert refused(load, text) == [line]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file=tmp_path / "gone.yaml", flags={}, environment={}, hostname="h")
    assert str(caught.value) == f"{tmp_path}/gone.yaml: cannot be read: No such file or directory"


def test_a_file_without_end() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file=Path("/dev/zero"), flags={}, environment={}, hostname="h")
    assert str(caught.value) == "/dev/zero: cannot be read: it has more than 4 MiB"


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file=tmp_path, flags={}, environment={}, hostname="h")
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "svc.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file=file, flags={}, environment={}, hostname="h")
    assert str(caught.value) == f"{file}:2: is not UTF-8 text"


def test_flags_are_checked_beside_a_file_that_cannot_be_read(load: Load, refused: Refuse) -> None:
    lines = refused(load, "", flags={"--min-sync-period": "3"})
    assert lines == [
        "svc.yaml:1: is empty",
        'flag --min-sync-period: dataplane.minSyncPeriod: missing unit in duration "3"',
    ]


CONFIG_MAP = """\
kind: ConfigMap
apiVersion: v1
metadata: {name: nodeagent}
data:
  config.conf: |
    apiVersion: nodeagent.io/v1alpha1
    kind: NodeAgentConfiguration

    logging:
      level: debug
"""


def test_a_config_map_around_our_own_kind_has_the_lines_of_the_outer_file(load: Load, refused: Refuse) -> None:
    assert load(CONFIG_MAP).origins["logging.level"].endswith("svc.yaml:10")
    assert refused(load, CONFIG_MAP.replace("level:", "levle:")) == [
        "svc.yaml:10: logging.levle: unknown key; did you mean logging.level?"
    ]
    assert refused(load, CONFIG_MAP.replace("debug", "[debug")) == [
        "svc.yaml:10: not valid YAML: did not find expected ',' or ']'"
    ]


def test_a_config_map_in_json_has_the_line_of_its_key(load: Load) -> None:
    inner = '"apiVersion: nodeagent.io/v1alpha1\\nkind: NodeAgentConfiguration\\nlogging:\\n  level: debug\\n"'
    loaded = load('{"apiVersion": "v1", "kind": "ConfigMap",\n "data": {\n  "config.conf": ' + inner + "}}")
    assert loaded.origins["logging.level"].endswith("svc.yaml:3")


def test_dates_and_switches_are_read_as_kubernetes_reads_them(own: Load) -> None:
    loaded = own("node:\n  name: 2024-01-01\ntraffic:\n  masqueradeAll: yes\n")
    assert (loaded.config.node.name, loaded.config.traffic.masquerade_all) == ("2024-01-01", True)


def test_json_is_taken(load: Load) -> None:
    text = dedent("""\
        {
          "apiVersion": "nodeagent.io/v1alpha1",
          "kind": "NodeAgentConfiguration",
          "node": {
            "name": "n"
          }
        }
        """)
    assert load(text).origins["node.name"].endswith("svc.yaml:5")


@given(st.text(alphabet="abk:-[]{}\n \"'|>&*!%#,\t0~?", max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    lines = []
    try:
        read_text(text, "svc.yaml")
    except ConfigError as error:
        lines = str(error).splitlines()
    assert all(line.startswith("svc.yaml:") for line in lines)


@pytest.mark.parametrize(
    ("scalar", "read"),
    [
        pytest.param("1:30", "1:30", id="no number in base 60"),
        pytest.param("2026-01-01", "2026-01-01", id="no date"),
        pytest.param("0o17", 15, id="octal"),
        pytest.param("Yes", True, id="a switch"),
    ],
)
def test_scalars_mean_what_they_mean_in_manifests(scalar: str, read: object) -> None:
    text = f"apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\nlogging:\n  level: {scalar}\n"
    assert read_text(text, "svc.yaml").settings["logging.level"].value == read
