"""coop_cmp/features/store.py: what is kept is found again, and what is wrong is never used."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from coop_cmp.features.store import SUFFIX, FeatureStore, checksum, store_folder
from tests.commands import command

main = command("store", handled=True)

DESCRIPTION = {"about": "features of 3 images", "tower": "t", "files": "f", "views": [4, 1]}
FEATURES = torch.arange(12.0).view(3, 4)
FORK = multiprocessing.get_context("fork")


class Computed:
    """Counts how often the features are computed."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> torch.Tensor:
        self.times += 1
        return FEATURES.clone()


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(tmp_path / "store")


def files(store: FeatureStore) -> list[Path]:
    return sorted(store.folder.iterdir()) if store.folder.is_dir() else []


def test_features_are_computed_once_and_then_mapped_from_the_file(store):
    compute = Computed()
    first, second = store.fetch(DESCRIPTION, compute), store.fetch(DESCRIPTION, compute)
    assert compute.times == 1
    assert torch.equal(first, FEATURES)
    assert torch.equal(second, FEATURES)
    (path,) = files(store)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(path) in maps.read_text()


@pytest.mark.parametrize(
    ("change", "times"),
    [
        ({"tower": "u"}, 2),
        ({"files": "g"}, 2),
        ({"views": [4, 2]}, 2),
        ({"more": None}, 2),
        ({"about": "for people, in other words"}, 1),
    ],
)
def test_any_other_description_has_features_of_its_own(change, times, store):
    compute = Computed()
    store.fetch(DESCRIPTION, compute)
    store.fetch({**DESCRIPTION, **change}, compute)
    assert compute.times == len(files(store)) == times


def of_another_key(path: Path) -> None:
    """A sound file that was made for something else and renamed."""
    other = FeatureStore(path.parent / "other")
    other.fetch({"tower": "another"}, lambda: FEATURES + 1)
    files(other)[0].rename(path)
    other.folder.rmdir()


def of_another_program(path: Path) -> None:
    save_file({"weights": FEATURES}, path)


def with_right_sum(features: torch.Tensor) -> Callable[[Path], None]:
    """Wrong features under the right key, with their checksum."""
    metadata = {"checksum": checksum(features)}
    return lambda path: save_file({"features": features}, path, {"key": path.stem, **metadata})


def changed(change: Callable[[bytes], bytes]) -> Callable[[Path], int]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


DAMAGES = {
    "truncated": changed(lambda content: content[:-5]),
    "empty": changed(lambda content: b""),
    "one bit changed": changed(lambda content: content[:-1] + bytes([content[-1] ^ 1])),
    "garbage": changed(lambda content: b"not features at all" * 100),
    "of another key": of_another_key,
    "of another program": of_another_program,
    "zero": with_right_sum(torch.zeros(3, 4)),
    "a row of zeros": with_right_sum(torch.cat([FEATURES[:2], torch.zeros(1, 4)])),
    "not finite": with_right_sum(FEATURES / 0),
    "half precision": with_right_sum(FEATURES.half()),
    "rows": with_right_sum(FEATURES[:2]),
    "columns": with_right_sum(FEATURES[:, :2].contiguous()),
    "flat": with_right_sum(FEATURES.flatten()),
}


def test_a_waiting_run_goes_on_although_workers_of_the_first_live_longer(store):
    """They are forked while the lock is held, and have it open until the first run ends."""
    worker, waiting = FORK.Process(target=time.sleep, args=(60,)), []

    def compute() -> torch.Tensor:
        (lock,) = store.folder.glob("*.lock")
        waiting.append(open(lock, "ab"))  # noqa: SIM115 - as another run would
        worker.start()
        return FEATURES

    store.fetch(DESCRIPTION, compute)
    try:
        fcntl.flock(waiting[0], fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where it is still held
    finally:
        worker.kill()
        waiting[0].close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_is_made_anew(damage, store, capsys):
    compute = Computed()
    store.fetch(DESCRIPTION, compute)
    (path,) = files(store)
    DAMAGES[damage](path)
    capsys.readouterr()
    assert torch.equal(store.fetch(DESCRIPTION, compute, (3, 4)), FEATURES)
    assert compute.times == 2
    assert capsys.readouterr().out.count(f"{path} is not used, but made anew: ") == 1
    for shape in ((3, 4), (3, None), None):
        assert torch.equal(store.fetch(DESCRIPTION, compute, shape), FEATURES)
    assert compute.times == 2


def _fetch_slowly(folder: Path, log: Path, start) -> None:
    def compute() -> torch.Tensor:
        with open(log, "a") as file:
            file.write("computed\n")
        time.sleep(0.3)
        return FEATURES

    start.wait()
    assert torch.equal(FeatureStore(folder).fetch(DESCRIPTION, compute), FEATURES)


def _at_once(target, arguments: list[tuple]) -> None:
    """Run a function in several processes, all of which must end well."""
    processes = [FORK.Process(target=target, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_runs_at_the_same_time_compute_once(store, tmp_path):
    start, log = FORK.Barrier(3), tmp_path / "log"
    _at_once(_fetch_slowly, [(store.folder, log, start)] * 3)
    assert log.read_text() == "computed\n"
    assert [path.suffix for path in files(store)] == [SUFFIX]


def _fail_then_wait(folder: Path, log: Path, number: int, turns) -> None:
    """The first holder of the lock fails while the second waits; the third comes after that."""

    def compute() -> torch.Tensor:
        if number == 0:
            turns[0].set()
            time.sleep(0.5)
            raise KeyboardInterrupt
        turns[1].set()
        with open(log, "a") as file:
            file.write("computed\n")
        time.sleep(0.5)
        return FEATURES

    if number:
        turns[number - 1].wait()
    with suppress(KeyboardInterrupt):
        FeatureStore(folder).fetch(DESCRIPTION, compute)


def test_a_run_that_fails_does_not_let_two_others_compute(store, tmp_path):
    turns, log = [FORK.Event(), FORK.Event()], tmp_path / "log"
    _at_once(_fail_then_wait, [(store.folder, log, number, turns) for number in range(3)])
    assert log.read_text() == "computed\n"


def test_a_folder_that_cannot_be_made_costs_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    store = FeatureStore(tmp_path / "file" / "store")
    assert torch.equal(store.fetch(DESCRIPTION, Computed()), FEATURES)
    (line,) = capsys.readouterr().out.splitlines()
    assert "going on without" in line


def test_a_failure_while_computing_is_shown_once_and_leaves_nothing(store):
    calls = []

    def fail() -> torch.Tensor:
        calls.append(1)
        raise OSError("no such picture")

    with pytest.raises(OSError, match="no such picture"):
        store.fetch(DESCRIPTION, fail)
    assert len(calls) == 1
    assert files(store) == []


def test_the_report_lists_what_is_there(store, capsys):
    store.fetch(DESCRIPTION, Computed())
    capsys.readouterr()
    main(["--store", str(store.folder)])
    output = capsys.readouterr().out
    assert "features of 3 images" in output
    assert "1 files, 0.0 MB" in output


def test_pruning_deletes_what_was_not_used_for_so_long(store, capsys):
    old, used, new = ({**DESCRIPTION, "tower": name} for name in ("old", "used", "new"))
    month_ago = time.time() - 30 * 86400
    for description in (old, used):
        store.fetch(description, Computed())
    for path in files(store):
        os.utime(path, (month_ago, month_ago))
    store.fetch(used, Computed())  # reading counts as use
    store.fetch(new, Computed())
    main(["--store", str(store.folder), "--prune", "20"])
    assert "deleted 1 files" in capsys.readouterr().out
    counts = []
    for description in (old, used, new):
        compute = Computed()
        store.fetch(description, compute)
        counts.append(compute.times)
    assert counts == [1, 0, 0]


def test_pruning_with_0_deletes_all_and_what_killed_runs_left(store):
    store.fetch(DESCRIPTION, Computed())
    (path,) = files(store)
    os.utime(path, (time.time() + 9e6,) * 2)  # from a machine whose clock is ahead
    for name in (f".{path.name}.host.7.tmp", f"{path.stem}.lock"):
        leftover = store.folder / name
        leftover.write_bytes(b"")
        os.utime(leftover, (0, 0))
    store.prune(0)
    assert files(store) == []


def test_pruning_leaves_what_the_store_did_not_make(store):
    store.fetch(DESCRIPTION, Computed())
    save_file({"weights": FEATURES}, store.folder / "model.safetensors")
    save_file({"features": FEATURES}, store.folder / "x.safetensors", {"key": "y"})
    for name in ("torn.safetensors", "poetry.lock", ".mine.tmp"):
        (store.folder / name).write_bytes(b"mine")
    for path in files(store):
        os.utime(path, (0, 0))
    assert len(store.prune(0)) == 1
    assert {path.name for path in files(store)} == {
        "model.safetensors",
        "x.safetensors",
        "torn.safetensors",
        "poetry.lock",
        ".mine.tmp",
    }


def test_the_folder_is_the_users_own(tmp_path, capsys, monkeypatch):
    store = FeatureStore(tmp_path / "deep" / "store")
    compute = Computed()
    store.fetch(DESCRIPTION, compute)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    store.folder.chmod(0o770)
    assert torch.equal(store.fetch(DESCRIPTION, compute), FEATURES)
    assert compute.times == 2
    assert "others can write to it; close it with: chmod 700" in capsys.readouterr().out
    store.folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    store.fetch(DESCRIPTION, compute)
    assert compute.times == 3
    assert "belongs to another user" in capsys.readouterr().out


def test_the_report_of_a_store_that_does_not_exist_is_empty(tmp_path, capsys):
    main(["--store", str(tmp_path / "none"), "--prune", "1"])
    assert "0 files" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_the_default_folder_is_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store_folder("auto") == tmp_path / "coop_cmp" / "features"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store_folder("auto") == Path.home() / ".cache" / "coop_cmp" / "features"
    assert store_folder("~/mine") == Path.home() / "mine"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_the_checksum_sees_type_shape_and_every_element(dtype):
    tensor = torch.arange(6).to(dtype)
    other = tensor.clone()
    other[3] += 1
    sums = {checksum(t) for t in (tensor, other, tensor.view(2, 3), tensor.double())}
    assert len(sums) == 4
    assert checksum(tensor) == checksum(tensor.clone())
    assert checksum(tensor[::2]) == checksum(tensor[::2].contiguous())


def test_a_store_with_a_budget_forgets_what_was_not_used_for_longest(tmp_path):
    store = FeatureStore(tmp_path, budget=3 * 4096)
    for i in range(6):
        store.fetch({"number": i}, lambda: torch.zeros(800))
        store.fetch({"number": 0}, lambda: torch.ones(800))  # used again and again
    kept = [entry["path"] for entry in store.entries()]
    assert len(kept) == 3
    assert store.fetch({"number": 0}, lambda: torch.ones(800)).sum() == 0
    assert store.fetch({"number": 5}, lambda: torch.ones(800)).sum() == 0
    assert store.fetch({"number": 1}, lambda: torch.ones(800)).sum() == 800
