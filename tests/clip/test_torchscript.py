"""TorchScript archives: the same tensors as ``torch.jit.load``, and no code of theirs run."""

from __future__ import annotations

import os
import pickle
import struct
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from coop_cmp.clip.load import read_state_dict
from coop_cmp.clip.torchscript import is_torchscript, read_torchscript
from coop_cmp.errors import UserError


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4).half())
        self.register_buffer("count", torch.arange(5))
        self.plain = torch.ones(2)  # neither parameter nor buffer
        self.names = ["a", "b"]
        self.sizes = [1, 2]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight.sum() + self.plain.sum() + self.sizes[0] + len(self.names[0])


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.layers = nn.Sequential(nn.Linear(2, 2), Inner())
        self.shared = self.inner
        self.turned = nn.Parameter(torch.randn(4, 3).t())
        self.part = nn.Parameter(torch.randn(6)[2:4])
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.scale = nn.Parameter(torch.tensor(4.6))
        self.flag = nn.Parameter(torch.tensor([True, False]), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        yield


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    torch.jit.script(Outer()).save(str(path))
    return path


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor), name


def test_the_tensors_are_those_of_torch_jit_load(archive):
    assert is_torchscript(archive)
    assert_same(read_torchscript(archive), dict(torch.jit.load(archive).state_dict()))


class WritesAFile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    @torch.jit.export
    def __getstate__(self) -> tuple[Tensor, bool]:
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]) -> None:
        self.weight = state[0]
        self.training = state[1]
        torch.save(state[0], "written")

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_code_that_loading_would_run_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.jit.script(WritesAFile()).save("evil.pt")
    torch.jit.load("evil.pt")
    assert os.path.exists("written")  # this is what there is to guard against
    os.remove("written")
    with pytest.raises(UserError, match=r"evil\.pt.*has a state of its own making"):
        read_state_dict("evil.pt")
    assert not os.path.exists("written")


class Bomb:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def rewritten(source: Path, changes: dict[str, bytes], compress: str = "") -> Path:
    """A copy of an archive with other content in some files."""
    target = source.with_name("changed.pt")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            inside = name.split("/", 1)[1]
            kind = zipfile.ZIP_DEFLATED if inside == compress else zipfile.ZIP_STORED
            new.writestr(name, changes.get(inside, old.read(name)), kind)
    return target


def module_pickle(value: bytes) -> bytes:
    """A pickle of the module ``__torch__.M`` whose attribute ``w`` is made by some opcodes."""
    return b"\x80\x02c__torch__\nM\n)\x81}X\x01\x00\x00\x00w" + value + b"sb."


def tensor_opcodes(offset: int, size: list[int], stride: list[int], count: int = 12) -> bytes:
    def number(n: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", n)

    def numbers(ns: list[int]) -> bytes:
        return b"(" + b"".join(map(number, ns)) + b"t"

    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    )
    storage += number(count) + b"tQ"
    arguments = storage + number(offset) + numbers(size) + numbers(stride)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"\x89NtR"


HOSTILE = {
    "a system call": pickle.dumps(Bomb(os.system, "touch written"), 2),
    "eval": pickle.dumps(Bomb(eval, "open('written', 'w')"), 2),
    "getattr": b"\x80\x02cbuiltins\ngetattr\n.",
    "a module of torch": b"\x80\x02ctorch.hub\nload\n.",
    "a dotted name": b"\x80\x02ctorch\nhub.load\n.",
    "no module": pickle.dumps({"a": 1}, 2),
    "a torn pickle": b"\x80\x02c__torch__\nM\n)\x81}",
    "an empty pickle": b"",
    "a call of a shell": b"\x80\x02c__torch__\nM\nK\x01\x85R.",
    "a changed function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}"
    b"X\x0c\x00\x00\x00__defaults__)s\x86b.",
    "a changed class": b"\x80\x02c__torch__\nM\n}X\x0c\x00\x00\x00__setstate__Nsb.",
    "an unknown record": b"\x80\x02(X\x04\x00\x00\x00fileNNNNtQ.",
    "a path for a record": module_pickle(
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x05\x00\x00\x00../..NK\x01tQ"
    ),
    "beyond the storage": module_pickle(tensor_opcodes(0, [13], [1])),
    "an offset beyond": module_pickle(tensor_opcodes(12, [1], [1])),
    "a negative stride": module_pickle(tensor_opcodes(3, [2], [-1])),
    "ten billion numbers of one": module_pickle(tensor_opcodes(0, [10**10], [0])),
    "another count": module_pickle(tensor_opcodes(0, [2], [1], count=11)),
    "a tensor of nothing": module_pickle(b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))tR"),
    "a module in itself": b"\x80\x02c__torch__\nM\n)\x81q\x01}X\x01\x00\x00\x00mh\x01sb.",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_runs_nothing(name, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = rewritten(archive, {"data.pkl": HOSTILE[name]})
    with pytest.raises(UserError, match=r"cannot read weights from .*changed\.pt") as caught:
        read_state_dict(path)
    assert "\n" not in str(caught.value)
    assert not os.path.exists("written")


def test_shared_modules_do_not_multiply_without_end(archive):
    opcodes = b"\x80\x02"
    inner = tensor_opcodes(0, [1], [1])
    opcodes += b"c__torch__\nM\n)\x81}X\x01\x00\x00\x00w" + inner + b"sbq\x00"
    for level in range(1, 40):  # 2**39 names
        last = b"h" + bytes([level - 1])
        opcodes += b"c__torch__\nM\n)\x81}(X\x01\x00\x00\x00a" + last
        opcodes += b"X\x01\x00\x00\x00b" + last + b"ubq" + bytes([level])
    path = rewritten(archive, {"data.pkl": opcodes + b"."})
    with pytest.raises(UserError, match="more than 100000 tensors"):
        read_state_dict(path)


def test_a_compressed_record_and_a_foreign_byte_order_are_refused(archive):
    with pytest.raises(UserError, match="data/0 is compressed"):
        read_state_dict(rewritten(archive, {}, compress="data/0"))
    with pytest.raises(UserError, match="not little-endian"):
        read_state_dict(rewritten(archive, {"byteorder": b"big"}))


def test_other_files_are_no_archives(tmp_path):
    torch.save({"w": torch.zeros(2)}, tmp_path / "state.pt")
    (tmp_path / "text.pt").write_text("no zip")
    assert not is_torchscript(tmp_path / "state.pt")
    assert not is_torchscript(tmp_path / "text.pt")
