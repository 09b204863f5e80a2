"""Registry, logger, meters, files and environment."""

from __future__ import annotations

import ast
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import dassl
import numpy as np
import pytest
import torch
from dassl.utils import (
    AverageMeter,
    Logger,
    MetricMeter,
    Registry,
    check_availability,
    check_isfile,
    collect_env_info,
    count_num_param,
    download_url,
    listdir_nohidden,
    mkdir_if_missing,
    read_json,
    set_random_seed,
    setup_logger,
    tolist_if_not,
    write_json,
)
from torch import nn


class Terminal(io.StringIO):
    encoding = "koi8-r"

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 7


def test_a_registry_works_as_decorator_and_as_call_and_hands_the_class_back():
    registry = Registry("T")

    @registry.register()
    class First: ...

    @registry.register
    class Second: ...

    assert registry.get("First") is First
    assert registry.get("Second") is Second
    assert registry.registered_names() == ["First", "Second"]


def test_a_registry_refuses_a_second_object_of_a_name_unless_forced():
    registry = Registry("T")
    first = type("X", (), {})
    second = type("X", (), {})
    registry.register(first)
    with pytest.raises(KeyError, match=r'An object named "X" was already registered in "T"'):
        registry.register(second)
    registry.register(second, force=True)
    assert registry.get("X") is second
    with pytest.raises(KeyError, match=r'Object name "Y" does not exist in "T" registry'):
        registry.get("Y")


def test_an_unknown_name_is_answered_with_the_closest_one():
    check_availability("CoOp", ["CoOp"])
    with pytest.raises(ValueError, match=r"but got \[CoOpp\] \(do you mean \[CoOp\]\?\)"):
        check_availability("CoOpp", ["MaPLe", "CoOp", "KgCoOp"])


def test_the_logger_copies_stdout_and_still_answers_for_the_console(tmp_path, monkeypatch):
    console = Terminal()
    monkeypatch.setattr(sys, "stdout", console)
    setup_logger(str(tmp_path / "run"))
    print("one")
    assert isinstance(sys.stdout, Logger)
    assert sys.stdout.isatty()
    assert sys.stdout.fileno() == 7
    assert sys.stdout.encoding == "koi8-r"
    # Without any flush: this is what a killed run leaves.
    assert (tmp_path / "run" / "log.txt").read_text() == "one\n" == console.getvalue()
    sys.stdout.close()
    assert not console.closed
    print("two")
    assert console.getvalue() == "one\ntwo\n"


def test_a_second_log_gets_the_time_in_its_name_and_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    for text in ("first", "second"):
        setup_logger(str(tmp_path))
        print(text)
    old, new = sorted(path.name for path in tmp_path.iterdir())
    assert old == "log.txt"
    assert new.startswith("log.txt-20")
    assert (tmp_path / old).read_text() == "first\n"
    assert (tmp_path / new).read_text() == "second\n"
    sys.stdout.close()


def test_no_output_means_no_logger_and_a_log_file_can_be_named(tmp_path, monkeypatch):
    console = io.StringIO()
    monkeypatch.setattr(sys, "stdout", console)
    setup_logger(None)
    setup_logger("")
    assert sys.stdout is console
    setup_logger(str(tmp_path / "deep" / "my.log"))
    print("hi")
    assert (tmp_path / "deep" / "my.log").read_text() == "hi\n"
    sys.stdout.close()


def test_an_unwritable_log_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write the log file .*file.*--output-dir"):
        setup_logger(str(tmp_path / "file" / "run"))


def test_the_same_seed_gives_the_same_numbers_everywhere():
    draws = []
    for _ in range(2):
        set_random_seed(3)
        draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1]


def test_the_environment_is_described_without_starting_a_process(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    text = collect_env_info()
    for expected in (torch.__version__.split("+")[0], np.__version__, "pillow", "Python", "device"):
        assert expected in text


def test_an_average_meter_weighs_by_count_and_can_be_exponential():
    meter = AverageMeter()
    meter.update(torch.tensor(1.0))
    meter.update(4.0, n=2)
    assert (meter.val, meter.avg, meter.sum, meter.count) == (4.0, 3.0, 9.0, 3)
    meter.reset()
    assert meter.count == 0
    meter = AverageMeter(ema=True)
    meter.update(1.0)
    meter.update(2.0)
    assert meter.avg == pytest.approx(0.9 * 0.1 + 0.2)


def test_a_metric_meter_prints_value_and_mean_of_each_name():
    meter = MetricMeter()
    meter.update({"loss": 1.0, "acc": torch.tensor(50.0)})
    meter.update(None)
    meter.update({"loss": 2.0})
    assert str(meter) == "loss 2.0000 (1.5000) acc 50.0000 (50.0000)"
    with pytest.raises(TypeError, match="must be a dictionary, got list"):
        meter.update([1.0])


def test_json_goes_through_a_directory_that_did_not_exist(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_json({"x": [1, "é"]}, str(path))
    assert read_json(str(path)) == {"x": [1, "é"]}
    assert path.read_text() == json.dumps({"x": [1, "é"]}, indent=4)


def test_path_helpers(tmp_path):
    mkdir_if_missing(str(tmp_path / "x" / "y"))
    for name in ("b", ".hidden", "a"):
        (tmp_path / "x" / "y" / name).write_text("data")
    assert listdir_nohidden(str(tmp_path / "x" / "y"), sort=True) == ["a", "b"]
    assert check_isfile(str(tmp_path / "x" / "y" / "a"))
    with pytest.warns(UserWarning, match="No file found at"):
        assert not check_isfile(str(tmp_path / "none"))
    assert tolist_if_not("a") == ["a"]
    assert tolist_if_not(["a"]) == ["a"]
    download_url((tmp_path / "x" / "y" / "a").as_uri(), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "data"


def test_parameters_are_counted():
    model = nn.Linear(2, 3)
    assert count_num_param(model) == 9 == count_num_param(params=model.parameters())
    with pytest.raises(ValueError, match="at least one"):
        count_num_param()


def test_importing_the_engine_needs_only_light_libraries():
    light = {"PIL", "dassl", "numpy", "tabulate", "torch", "torchvision", "tqdm", "yacs", "yaml"}
    rooms = ("config", "config.dassl_keys", "errors", "files", "legacy")
    ours = {f"coop_cmp.{room}" for room in rooms}
    for path in Path(dassl.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            names = [name for name in names if name not in ours]
            roots = {name.split(".")[0] for name in names}
            assert roots <= light | sys.stdlib_module_names, path
            assert "torch.utils.tensorboard" not in names, path
