"""A loader over a file that is written for the test, and the lines of what it refuses."""

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from nodeagent.config.config_problems import ConfigError
from nodeagent.config.load import LoadedConfig, load_config

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., list[str]]

OWN = "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
KUBE_PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a file of the given text (None: no file), flags and environment, on a host called ``Host-A``."""

    def load_layers(
        text: str | None = None,
        *,
        flags: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        hostname: str = "Host-A",
    ) -> LoadedConfig:
        file = None
        if text is not None:
            file = tmp_path / "svc.yaml"
            file.write_text(dedent(text), encoding="utf-8")
        return load_config(file=file, flags=flags or {}, environment=environment or {}, hostname=hostname)

    return load_layers


@pytest.fixture
def own(load: Load) -> Load:
    """Like `load`, for the body of a NodeAgentConfiguration, which begins at line 3."""
    return lambda body, **layers: load(OWN + dedent(body), **layers)


@pytest.fixture
def kube_proxy(load: Load) -> Load:
    """Like `load`, for the body of a KubeProxyConfiguration, which begins at line 3."""
    return lambda body, **layers: load(KUBE_PROXY + dedent(body), **layers)


@pytest.fixture
def refused(tmp_path: Path) -> Refuse:
    """Runs a loader that must fail and returns the lines of the error, without the directory of the file."""

    def lines_of(loader: Load, text: str | None = None, **layers: object) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loader(text, **layers)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return lines_of
