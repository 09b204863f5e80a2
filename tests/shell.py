"""Command lines of the documentation: the scripts run as they are, their Python in this process.

Importing torch takes seconds, so scripts get a stand-in for Python that only notes its arguments.
"""

from __future__ import annotations

import io
import os
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import dassl.config
import dassl.engine.build
import pytest
import torch
import yacs.config

from tests.conftest import ROOT

# What `python -m coop_cmp` changes for the rest of its process.
CHANGED_BY_THE_PLUGIN = (
    (dassl.config, "clean_cfg"),
    (dassl.engine, "build_trainer"),
    (dassl.engine.build, "build_trainer"),
    (yacs.config, "_check_and_coerce_cfg_value_type"),
)
STAND_IN = """#!/usr/bin/env bash
[ "${{1:-}}" = -c ] && exit 0 # has it all packages? It has
printf '%s\\0' {} "$@" >"$CALL"
"""


class Shell:
    """A checkout in a folder of its own, in which commands are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("coop_cmp", "configs", "datasets", "scripts", "trainers"):
            (folder / name).symlink_to(ROOT / name)
        shutil.copy(ROOT / "train.py", folder)
        self.python = folder / "bin" / "python"
        self.python.parent.mkdir()
        for name, first in (("python", ""), ("coop-cmp", "-m coop_cmp.cli")):
            self.python.with_name(name).write_text(STAND_IN.format(first))
            self.python.with_name(name).chmod(0o755)

    def __call__(self, line: str, **variables: str) -> str:
        """What a command prints; it must end well."""
        note = self.python.with_name("call")
        note.unlink(missing_ok=True)
        places = {"PYTHON": str(self.python), "CALL": str(note)}
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **variables, **places, "PATH": path},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return self._run(note.read_text().split("\0")[:-1], variables)

    def _run(self, words: list[str], variables: dict[str, str]) -> str:
        is_module = words[0] == "-m"
        program, *arguments = words[is_module:]
        threads, code = torch.get_num_threads(), 0
        output = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module may be imported already
            patch.chdir(self.folder)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", [program, *arguments])
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", output)
            for owner, name in CHANGED_BY_THE_PLUGIN:
                patch.setattr(owner, name, getattr(owner, name))
            patch.setattr(dassl.config, "cfg_default", dassl.config.get_cfg_default())
            try:
                if is_module:
                    runpy.run_module(program, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(program, run_name="__main__")
            except SystemExit as end:
                code = end.code
            finally:
                torch.set_num_threads(threads)
        assert not code, output.getvalue()
        return output.getvalue()
