"""The config tree."""

from __future__ import annotations

from operator import attrgetter

from dassl.config import cfg_default, clean_cfg, get_cfg_default
from yacs.config import CfgNode


def test_the_defaults_have_the_values_and_types_that_config_files_rely_on():
    cfg = get_cfg_default()
    for key, value in {
        "INPUT.SIZE": (224, 224),
        "INPUT.PIXEL_MEAN": [0.485, 0.456, 0.406],
        "DATASET.NUM_SHOTS": -1,
        "DATALOADER.NUM_WORKERS": 4,
        "DATALOADER.TRAIN_U.SAME_AS_X": True,
        "DATALOADER.TEST.SAMPLER": "SequentialSampler",
        "OPTIM.LR": 0.0003,
        "OPTIM.WEIGHT_DECAY": 0.0005,
        "OPTIM.STEPSIZE": (-1,),
        "OPTIM.WARMUP_CONS_LR": 1e-05,
        "TEST.FINAL_MODEL": "last_step",
        "TRAINER.NAME": "",
    }.items():
        found = attrgetter(key)(cfg)
        assert found == value
        assert type(found) is type(value)


def test_a_node_added_to_the_shared_defaults_is_in_every_copy(monkeypatch):
    monkeypatch.setitem(cfg_default.TRAINER, "MINE", CfgNode({"ALPHA": 1.0}))
    cfg = get_cfg_default()
    cfg.TRAINER.MINE.ALPHA = 2.0
    assert get_cfg_default().TRAINER.MINE.ALPHA == 1.0


def test_only_the_settings_of_the_chosen_trainer_are_kept():
    cfg = get_cfg_default()
    cfg.TRAINER.COOP = CfgNode({"N_CTX": 16})
    cfg.TRAINER.OTHER = CfgNode({"X": 1})
    clean_cfg(cfg, "CoOp")
    assert sorted(cfg.TRAINER) == ["COOP", "NAME"]
