"""One throw-away cluster for all tests here, and sweeps on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, running, why_not
from tests.sweep.conftest import root  # noqa: F401 - the fixture


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with running(tmp_path_factory.mktemp("slurm"), cpus=8, array=4) as cluster:
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(cluster.config)
        yield cluster
        os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)
