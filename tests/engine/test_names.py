"""The names that checkouts import from Dassl where upstream has them, and their arguments."""

from __future__ import annotations

import importlib
import inspect

import dassl
import pytest

# By module, each name with the arguments that callers may name; None for what is not called.
NAMES: dict[str, dict[str, str | None]] = {
    "dassl.config": {
        "cfg_default": None,
        "clean_cfg": "cfg trainer",
        "get_cfg_default": "",
    },
    "dassl.data": {
        "DataManager": "cfg custom_tfm_train custom_tfm_test dataset_wrapper",
        "DatasetWrapper": "cfg data_source transform is_train",
    },
    "dassl.data.data_manager": {
        "DataManager": "cfg custom_tfm_train custom_tfm_test dataset_wrapper",
        "DatasetWrapper": "cfg data_source transform is_train",
        "build_data_loader": "cfg sampler_type data_source batch_size n_domain n_ins tfm is_train",
    },
    "dassl.data.datasets": {
        "DATASET_REGISTRY": None,
        "DatasetBase": "train_x train_u val test",
        "Datum": "impath label domain classname",
        "build_dataset": "cfg",
    },
    "dassl.data.datasets.base_dataset": {
        "DatasetBase": "train_x train_u val test",
        "Datum": "impath label domain classname",
    },
    "dassl.data.datasets.build": {"DATASET_REGISTRY": None, "build_dataset": "cfg"},
    "dassl.data.samplers": {
        "RandomClassSampler": "data_source batch_size n_ins",
        "RandomDomainSampler": "data_source batch_size n_domain",
        "SeqDomainSampler": "data_source batch_size",
        "build_sampler": "sampler_type cfg data_source batch_size n_domain n_ins",
    },
    "dassl.data.transforms": {
        "INTERPOLATION_MODES": None,
        "build_transform": "cfg is_train choices",
    },
    "dassl.data.transforms.transforms": {
        "Cutout": "n_holes length",
        "GaussianNoise": "mean std p",
        "INTERPOLATION_MODES": None,
        "InstanceNormalization": "eps",
        "Random2DTranslation": "height width p interpolation",
        "build_transform": "cfg is_train choices",
    },
    "dassl.engine": {
        "SimpleNet": "cfg model_cfg num_classes",
        "SimpleTrainer": "cfg",
        "TRAINER_REGISTRY": None,
        "TrainerBase": "",
        "TrainerX": "cfg",
        "TrainerXU": "cfg",
        "build_trainer": "cfg",
    },
    "dassl.engine.build": {"TRAINER_REGISTRY": None, "build_trainer": "cfg"},
    "dassl.engine.trainer": {
        "AverageMeter": "ema",
        "DataManager": "cfg custom_tfm_train custom_tfm_test dataset_wrapper",
        "MetricMeter": "delimiter",
        "SimpleNet": "cfg model_cfg num_classes",
        "SimpleTrainer": "cfg",
        "SummaryWriter": "log_dir",
        "TrainerBase": "",
        "TrainerX": "cfg",
        "TrainerXU": "cfg",
        "build_evaluator": "cfg",
        "build_lr_scheduler": "optimizer optim_cfg",
        "build_optimizer": "model optim_cfg param_groups",
    },
    "dassl.evaluation": {
        "Classification": "cfg lab2cname",
        "EVALUATOR_REGISTRY": None,
        "EvaluatorBase": "cfg",
        "build_evaluator": "cfg",
    },
    "dassl.evaluation.build": {"EVALUATOR_REGISTRY": None, "build_evaluator": "cfg"},
    "dassl.evaluation.evaluator": {
        "Classification": "cfg lab2cname",
        "EvaluatorBase": "cfg",
    },
    "dassl.metrics": {"compute_accuracy": "output target topk"},
    "dassl.metrics.accuracy": {"compute_accuracy": "output target topk"},
    "dassl.modeling": {
        "BACKBONE_REGISTRY": None,
        "Backbone": "",
        "HEAD_REGISTRY": None,
        "build_backbone": "name verbose",
        "build_head": "name verbose",
    },
    "dassl.optim": {
        "build_lr_scheduler": "optimizer optim_cfg",
        "build_optimizer": "model optim_cfg param_groups",
    },
    "dassl.optim.lr_scheduler": {
        "ConstantWarmupScheduler": "optimizer successor warmup_epoch cons_lr",
        "LinearWarmupScheduler": "optimizer successor warmup_epoch min_lr",
        "build_lr_scheduler": "optimizer optim_cfg",
    },
    "dassl.optim.optimizer": {"build_optimizer": "model optim_cfg param_groups"},
    "dassl.optim.radam": {"RAdam": "params lr betas eps weight_decay degenerated_to_sgd"},
    "dassl.utils.logger": {"Logger": "fpath", "setup_logger": "output"},
    "dassl.utils.meters": {"AverageMeter": "ema", "MetricMeter": "delimiter"},
    "dassl.utils.registry": {"Registry": "name"},
    "dassl.utils.tools": {
        "check_availability": "requested available",
        "check_isfile": "fpath",
        "collect_env_info": "",
        "download_url": "url dst",
        "get_most_similar_str_to_a_from_b": "a b",
        "listdir_nohidden": "path sort",
        "mkdir_if_missing": "dirname",
        "read_image": "path",
        "read_json": "fpath",
        "set_random_seed": "seed",
        "tolist_if_not": "x",
        "write_json": "obj fpath",
    },
    "dassl.utils.torchtools": {
        "count_num_param": "model params",
        "init_network_weights": "model init_type gain",
        "load_checkpoint": "fpath",
        "load_pretrained_weights": "model weight_path",
        "open_all_layers": "model",
        "open_specified_layers": "model open_layers",
        "resume_from_checkpoint": "fdir model optimizer scheduler",
        "save_checkpoint": "state save_dir is_best remove_module_from_keys model_name",
    },
}
NAMES["dassl.utils"] = {
    name: arguments
    for module in ("logger", "meters", "registry", "tools", "torchtools")
    for name, arguments in NAMES[f"dassl.utils.{module}"].items()
}

# What a trainer's own code calls on `self`, beside the attributes that `SimpleTrainer` documents.
METHODS = {
    "after_epoch": "",
    "after_train": "",
    "before_epoch": "",
    "before_train": "",
    "build_data_loader": "",
    "build_model": "",
    "check_cfg": "cfg",
    "close_writer": "",
    "detect_anomaly": "loss",
    "get_current_lr": "names",
    "get_model_names": "names",
    "init_writer": "log_dir",
    "load_model": "directory epoch",
    "model_backward": "loss",
    "model_backward_and_update": "loss names",
    "model_inference": "input",
    "model_update": "names",
    "model_zero_grad": "names",
    "parse_batch_test": "batch",
    "parse_batch_train": "batch",
    "register_model": "name model optim sched",
    "resume_model_if_exist": "directory",
    "run_epoch": "",
    "save_model": "epoch directory is_best val_result model_name",
    "set_model_mode": "mode names",
    "test": "split",
    "train": "",
    "update_lr": "names",
    "write_scalar": "tag scalar_value global_step",
}

# Methods and data sets of domain adaptation, generalisation and semi-supervised learning, the parts
# that only they use, and the pictures' policies: no CoOp-family code asks for them.
LEFT_OUT = (
    "dassl.data.datasets.da",
    "dassl.data.datasets.dg",
    "dassl.data.datasets.ssl",
    "dassl.data.transforms.autoaugment",
    "dassl.data.transforms.randaugment",
    "dassl.engine.da",
    "dassl.engine.dg",
    "dassl.engine.ssl",
    "dassl.metrics.distance",
    "dassl.modeling.network",
    "dassl.modeling.ops",
    "dassl.optim.radam.AdamW",
    "dassl.optim.radam.PlainRAdam",
)
LIGHT = "clean implementation" in (dassl.__doc__ or "")


def found(name: str) -> bool:
    module, _, last = name.rpartition(".")
    try:
        return bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(module), last)


def check_arguments(what: str, function: object, arguments: str) -> None:
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    expected = arguments.split()
    assert parameters[: len(expected)] == expected, what


@pytest.mark.parametrize("module", NAMES)
def test_each_public_name_is_there_and_takes_the_arguments_of_upstream(module):
    home = importlib.import_module(module)
    for name, arguments in NAMES[module].items():
        value = getattr(home, name)
        if arguments is not None:
            check_arguments(f"{module}.{name}", value, arguments)


def test_each_method_of_a_trainer_is_there_and_takes_the_arguments_of_upstream():
    from dassl.engine import TrainerX

    for name, arguments in METHODS.items():
        check_arguments(name, getattr(TrainerX, name), arguments)


@pytest.mark.skipif(not LIGHT, reason="upstream has them")
def test_what_is_left_out_on_purpose_is_really_left_out():
    assert [name for name in LEFT_OUT if found(name)] == []
