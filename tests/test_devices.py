"""coop_cmp/devices.py: which device is taken, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import coop_cmp
from coop_cmp.devices import (
    BUDGET,
    activation_budget,
    check_attention,
    choose_device,
    suit_convolutions,
    use_one_thread,
)
from coop_cmp.errors import UserError

CPU = torch.device("cpu")
attention = F.scaled_dot_product_attention


def as_if_contiguous(query: Any, key: Any, value: Any, *mask: Any, **options: Any) -> Any:
    """Batches of permuted queries are looked for where contiguous ones would be."""
    wrong = query.transpose(1, 2).contiguous().view(query.shape)
    return attention(wrong, key, value, *mask, **options)


def one_mask_for_all(query: Any, key: Any, value: Any, attn_mask: Any, **options: Any) -> Any:
    mask = attn_mask if attn_mask is None else attn_mask[:1]
    return attention(query, key, value, mask, **options)


def sees_the_future(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False
) -> Any:
    """In half precision the causal mask moves once in four tokens."""
    if is_causal and query.dtype == torch.float16:
        place = torch.arange(query.shape[2])
        attn_mask = torch.zeros(len(place), len(place), dtype=query.dtype)
        attn_mask.masked_fill_(place > place[:, None] // 4 * 4 + 3, -torch.inf)
        is_causal = False
    return attention(query, key, value, attn_mask, is_causal=is_causal)


def test_a_device_that_attends_rightly_is_taken():
    check_attention.__wrapped__(CPU)


@pytest.mark.parametrize("wrong", [as_if_contiguous, one_mask_for_all, sees_the_future])
def test_attention_as_wrong_as_some_releases_have_it_is_refused(wrong, monkeypatch):
    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong)
    with pytest.raises(UserError, match=r"torch .* computes attention wrongly on cpu"):
        check_attention.__wrapped__(CPU)


def test_an_operation_that_a_device_lacks_is_told_before_anything_is_loaded(monkeypatch):
    def lacking(device: torch.device) -> None:
        raise NotImplementedError("The operator 'aten::x' is not implemented for the MPS device")

    monkeypatch.setattr("coop_cmp.devices.check_attention", lacking)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    with pytest.raises(UserError, match=r'device "mps" cannot be used: The operator'):
        choose_device(SimpleNamespace(DEVICE="mps", USE_CUDA=True))


def test_half_of_what_a_gpu_has_free_is_for_activations(monkeypatch):
    asked = []
    monkeypatch.setattr(
        torch.cuda, "mem_get_info", lambda device: asked.append(device) or (10 << 30, 80 << 30)
    )
    assert activation_budget(torch.device("cuda:1")) == 5 << 30
    assert asked == [torch.device("cuda:1")]
    assert activation_budget(CPU) == activation_budget(torch.device("mps")) == BUDGET


def test_a_gpu_with_a_number_becomes_the_current_one(monkeypatch):
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for name in ("cuda", "cpu", "cuda:1"):
        choose_device(SimpleNamespace(DEVICE=name, USE_CUDA=True))
    assert chosen == [torch.device("cuda:1")]


@pytest.mark.parametrize(("convolutions", "tried"), [(1, False), (2, True)])
def test_convolutions_of_a_gpu_are_tried_where_a_tower_is_made_of_them(
    convolutions, tried, monkeypatch
):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    tower = torch.nn.Sequential(*(torch.nn.Conv2d(4, 4, 3) for _ in range(convolutions)))
    suit_convolutions(tower, CPU)
    assert tower[0].weight.is_contiguous()
    suit_convolutions(tower, torch.device("cuda"))
    assert tower[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.backends.cudnn.benchmark is tried


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("device", "given", "threads"), [("cpu", "", 1), ("cpu", "3", 3), ("cuda", "", 3)]
)
def test_one_thread_of_a_cpu_is_used_unless_the_user_chose(
    device, given, threads, three_threads, monkeypatch
):
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    use_one_thread(torch.device(device))
    assert torch.get_num_threads() == threads


def test_training_a_small_model_uses_one_thread_and_loading_a_run_changes_nothing(
    three_threads, run, pictures, tmp_path
):
    run("run")
    assert torch.get_num_threads() == 1
    torch.set_num_threads(3)
    coop_cmp.load(tmp_path / "run").predict(pictures / "test")
    assert torch.get_num_threads() == 3
