"""Views by seed, epoch and image: the same for every run, shared or not, whoever comes first."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from coop_cmp.features.store import Busy, FeatureStore
from coop_cmp.features.views import seeded_views
from coop_cmp.runs.identity import read_identity
from coop_cmp.trainers.base import PromptTrainer
from tests.features.test_loaders import RandomImages

SHARED = ("INPUT.SHARED_VIEWS", "True", "DATALOADER.NUM_WORKERS", "0")


def by_image(epoch: int, workers: int = 0, seed: int = 1, batch: int = 2) -> dict[int, Tensor]:
    """What each image was in an epoch."""
    loader = DataLoader(RandomImages(), batch, shuffle=True, num_workers=workers)
    seeded = seeded_views(loader, 9, seed)
    seeded.batch_sampler.epoch = epoch  # type: ignore[union-attr]
    found = {int(row[0]): row[1:] for batch in seeded for row in batch["img"]}
    assert sorted(found) == list(range(5))
    return found


@pytest.mark.parametrize("options", [{"workers": 2}, {"batch": 3}])
def test_a_view_depends_on_neither_workers_nor_batches_nor_other_draws(options):
    expected = by_image(3)
    torch.rand(7), random.random(), np.random.rand()
    for image, view in by_image(3, **options).items():
        assert torch.equal(view, expected[image])


def test_a_view_depends_on_seed_epoch_and_image():
    places = ((0, 1), (1, 1), (0, 2), (0, -1))
    views = [view for epoch, seed in places for view in by_image(epoch, 0, seed).values()]
    for column in torch.stack(views).t():  # one per generator
        assert len(column.unique()) == 20


def test_shared_features_are_those_of_fresh_views_but_for_rounding(run):
    fresh, _ = run("fresh", "DATALOADER.NUM_WORKERS", "0", "OPTIM.LR", "0.1")
    shared, said = run("shared", *SHARED, "OPTIM.LR", "0.1")
    assert "kept epochs 1 to 166, seed 1, of 6 images" in said
    assert np.abs(shared - fresh).max() < 1e-3 * np.abs(fresh).max()
    other, _ = run("other", *SHARED, "OPTIM.LR", "0.1", "INPUT.VIEW_SEED", "image", "SEED", "2")
    assert np.abs(other - fresh).max() > 1e-2 * np.abs(fresh).max()


def test_it_does_not_matter_who_encodes_first(run, monkeypatch, tmp_path):
    results = []
    for place, order in (("a", ("0.1", "0.9")), ("b", ("0.9", "0.1"))):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
        logits = {lam: run(f"{place}{lam}", *SHARED, "TRAINER.CMP.LAMBDA", lam) for lam in order}
        assert "kept epochs" in logits[order[0]][1]
        assert "read epochs" in logits[order[1]][1]
        results.append({lam: found for lam, (found, _) in logits.items()})
    for lam in ("0.1", "0.9"):
        assert (results[0][lam] == results[1][lam]).all()


def test_a_run_that_would_wait_encodes_later_epochs_instead(run, monkeypatch):
    """The first part is taken by another run until the second one is made."""
    fetch, asked = FeatureStore.fetch, []

    def busy(store: Any, description: Any, *rest: Any) -> Tensor:
        if description["views"]:
            asked.append(description["views"][1])
            if asked == [0] or (asked[0] == 0 and 166 not in asked):
                raise Busy
        return fetch(store, description, *rest)

    expected, _ = run("expected", *SHARED, "OPTIM.MAX_EPOCH", "170", "--no-feature-store")
    monkeypatch.setattr(FeatureStore, "fetch", busy)
    found, _ = run("found", *SHARED, "OPTIM.MAX_EPOCH", "170")
    assert asked == [0, 0, 166, 0, 166]
    assert (found == expected).all()


@pytest.mark.parametrize("shared", ["True", "False"])
def test_a_killed_run_goes_on_with_the_views_of_its_epoch(run, shared, monkeypatch):
    options = ("INPUT.SHARED_VIEWS", shared, "DATALOADER.NUM_WORKERS", "1")
    options += ("TRAIN.CHECKPOINT_FREQ", "1", "OPTIM.LR", "0.1")
    whole, _ = run("whole", *options)
    with monkeypatch.context() as patch:
        patch.setattr(PromptTrainer, "after_train", lambda trainer: None)
        after = PromptTrainer.after_epoch

        def killed(trainer: Any) -> None:
            after(trainer)
            if trainer.epoch == 1:
                raise OSError("killed")

        patch.setattr(PromptTrainer, "after_epoch", killed)
        assert "killed" in run("killed", *options, code=2)
    resumed, said = run("killed", *options)
    assert "will resume training" in said
    assert (resumed == whole).all()


@pytest.mark.parametrize("options", [("INPUT.VIEW_SEED", "stream"), ("SEED", "-1")])
def test_views_that_no_other_run_can_make_are_not_shared(run, options):
    assert "INPUT.SHARED_VIEWS needs views that every run can make again" in run(
        "refused", *SHARED, *options, code=2
    )


def test_a_run_without_a_seed_says_that_its_views_come_from_the_stream(run, tmp_path):
    run("unseeded", "SEED", "-1", "INPUT.VIEW_SEED", "image")
    run("seeded", "INPUT.VIEW_SEED", "image")
    found = [read_identity(tmp_path / name) for name in ("unseeded", "seeded")]
    assert [of.settings["INPUT.VIEW_SEED"] for of in found if of] == ["stream", "image"]


def test_a_run_whose_images_were_drawn_without_a_seed_does_not_go_on(run, monkeypatch, tmp_path):
    options = ("SEED", "-1", "TRAIN.CHECKPOINT_FREQ", "1")
    with monkeypatch.context() as patch:
        patch.setattr(PromptTrainer, "test", mock.Mock(side_effect=OSError("killed")))
        assert "killed" in run("unseeded", *options, code=2)
    run("unseeded", *options)  # it has learned all, and is tested
    last = tmp_path / "unseeded/prompt_learner/model.pth.tar-3"
    last.unlink()
    last.with_name("checkpoint").write_text("model.pth.tar-2\n")
    refused = run("unseeded", *options, code=2)
    assert "holds 2 of 3 epochs of a run without a seed" in refused
    run("unseeded", *options, "--redo")
