"""The names that checkouts import from Dassl where upstream has them, and their arguments."""

from __future__ import annotations

import importlib
import inspect

import dassl
import pytest

# The arguments that callers may name; None for what is not called.
ARGUMENTS: dict[str, str | None] = {
    "AverageMeter": "ema",
    "BACKBONE_REGISTRY": None,
    "Backbone": "",
    "Classification": "cfg lab2cname",
    "ConstantWarmupScheduler": "optimizer successor warmup_epoch cons_lr",
    "Cutout": "n_holes length",
    "DATASET_REGISTRY": None,
    "DataManager": "cfg custom_tfm_train custom_tfm_test dataset_wrapper",
    "DatasetBase": "train_x train_u val test",
    "DatasetWrapper": "cfg data_source transform is_train",
    "Datum": "impath label domain classname",
    "EVALUATOR_REGISTRY": None,
    "EvaluatorBase": "cfg",
    "GaussianNoise": "mean std p",
    "HEAD_REGISTRY": None,
    "INTERPOLATION_MODES": None,
    "InstanceNormalization": "eps",
    "LinearWarmupScheduler": "optimizer successor warmup_epoch min_lr",
    "Logger": "fpath",
    "MetricMeter": "delimiter",
    "RAdam": "params lr betas eps weight_decay degenerated_to_sgd",
    "Random2DTranslation": "height width p interpolation",
    "RandomClassSampler": "data_source batch_size n_ins",
    "RandomDomainSampler": "data_source batch_size n_domain",
    "Registry": "name",
    "SeqDomainSampler": "data_source batch_size",
    "SimpleNet": "cfg model_cfg num_classes",
    "SimpleTrainer": "cfg",
    "SummaryWriter": "log_dir",
    "TRAINER_REGISTRY": None,
    "TrainerBase": "",
    "TrainerX": "cfg",
    "TrainerXU": "cfg",
    "build_backbone": "name verbose",
    "build_data_loader": "cfg sampler_type data_source batch_size n_domain n_ins tfm is_train",
    "build_dataset": "cfg",
    "build_evaluator": "cfg",
    "build_head": "name verbose",
    "build_lr_scheduler": "optimizer optim_cfg",
    "build_optimizer": "model optim_cfg param_groups",
    "build_sampler": "sampler_type cfg data_source batch_size n_domain n_ins",
    "build_trainer": "cfg",
    "build_transform": "cfg is_train choices",
    "cfg_default": None,
    "check_availability": "requested available",
    "check_isfile": "fpath",
    "clean_cfg": "cfg trainer",
    "collect_env_info": "",
    "compute_accuracy": "output target topk",
    "count_num_param": "model params",
    "download_url": "url dst",
    "get_cfg_default": "",
    "get_most_similar_str_to_a_from_b": "a b",
    "listdir_nohidden": "path sort",
    "load_checkpoint": "fpath",
    "load_pretrained_weights": "model weight_path",
    "mkdir_if_missing": "dirname",
    "read_image": "path",
    "read_json": "fpath",
    "resume_from_checkpoint": "fdir model optimizer scheduler",
    "save_checkpoint": "state save_dir is_best remove_module_from_keys model_name",
    "set_random_seed": "seed",
    "setup_logger": "output",
    "tolist_if_not": "x",
    "write_json": "obj fpath",
}
MODULES = {
    "dassl.config": "cfg_default clean_cfg get_cfg_default",
    "dassl.data": "DataManager DatasetWrapper",
    "dassl.data.data_manager": "DataManager DatasetWrapper build_data_loader",
    "dassl.data.datasets": "DATASET_REGISTRY DatasetBase Datum build_dataset",
    "dassl.data.datasets.base_dataset": "DatasetBase Datum",
    "dassl.data.datasets.build": "DATASET_REGISTRY build_dataset",
    "dassl.data.samplers": "RandomClassSampler RandomDomainSampler SeqDomainSampler build_sampler",
    "dassl.data.transforms": "INTERPOLATION_MODES build_transform",
    "dassl.data.transforms.transforms": (
        "Cutout GaussianNoise INTERPOLATION_MODES InstanceNormalization Random2DTranslation "
        "build_transform"
    ),
    "dassl.engine": (
        "SimpleNet SimpleTrainer TRAINER_REGISTRY TrainerBase TrainerX TrainerXU build_trainer"
    ),
    "dassl.engine.build": "TRAINER_REGISTRY build_trainer",
    "dassl.engine.trainer": (
        "AverageMeter DataManager MetricMeter SimpleNet SimpleTrainer SummaryWriter TrainerBase "
        "TrainerX TrainerXU build_evaluator build_lr_scheduler build_optimizer"
    ),
    "dassl.evaluation": "Classification EVALUATOR_REGISTRY EvaluatorBase build_evaluator",
    "dassl.evaluation.build": "EVALUATOR_REGISTRY build_evaluator",
    "dassl.evaluation.evaluator": "Classification EvaluatorBase",
    "dassl.metrics": "compute_accuracy",
    "dassl.metrics.accuracy": "compute_accuracy",
    "dassl.modeling": "BACKBONE_REGISTRY Backbone HEAD_REGISTRY build_backbone build_head",
    "dassl.optim": "build_lr_scheduler build_optimizer",
    "dassl.optim.lr_scheduler": "ConstantWarmupScheduler LinearWarmupScheduler build_lr_scheduler",
    "dassl.optim.optimizer": "build_optimizer",
    "dassl.optim.radam": "RAdam",
    "dassl.utils.logger": "Logger setup_logger",
    "dassl.utils.meters": "AverageMeter MetricMeter",
    "dassl.utils.registry": "Registry",
    "dassl.utils.tools": (
        "check_availability check_isfile collect_env_info download_url "
        "get_most_similar_str_to_a_from_b listdir_nohidden mkdir_if_missing read_image "
        "read_json set_random_seed tolist_if_not write_json"
    ),
    "dassl.utils.torchtools": (
        "count_num_param load_checkpoint load_pretrained_weights resume_from_checkpoint "
        "save_checkpoint"
    ),
}
UTILS = ("logger", "meters", "registry", "tools", "torchtools")
MODULES["dassl.utils"] = " ".join(MODULES[f"dassl.utils.{module}"] for module in UTILS)

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
# that only they use, the pictures' policies and tools for whole networks: no CoOp-family code asks
# for them.
LEFT_OUT = (
    "dassl.data.datasets.da",
    "dassl.data.datasets.dg",
    "dassl.data.datasets.ssl",
    "dassl.data.transforms.autoaugment",
    "dassl.engine.da",
    "dassl.engine.dg",
    "dassl.engine.ssl",
    "dassl.metrics.distance",
    "dassl.modeling.network",
    "dassl.modeling.ops",
    "dassl.optim.radam.AdamW",
    "dassl.optim.radam.PlainRAdam",
    "dassl.utils.init_network_weights",
    "dassl.utils.open_all_layers",
    "dassl.utils.open_specified_layers",
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


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_there_and_takes_the_arguments_of_upstream(module):
    home = importlib.import_module(module)
    for name in MODULES[module].split():
        value, arguments = getattr(home, name), ARGUMENTS[name]
        if arguments is not None:
            check_arguments(f"{module}.{name}", value, arguments)


def test_each_method_of_a_trainer_is_there_and_takes_the_arguments_of_upstream():
    from dassl.engine import TrainerX

    for name, arguments in METHODS.items():
        check_arguments(name, getattr(TrainerX, name), arguments)


@pytest.mark.skipif(not LIGHT, reason="upstream has them")
def test_what_is_left_out_on_purpose_is_really_left_out():
    assert [name for name in LEFT_OUT if found(name)] == []
