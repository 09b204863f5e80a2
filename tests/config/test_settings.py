"""The settings: what each key takes, what is refused and how, and declarations in other files."""

from __future__ import annotations

import pytest
from dassl.config import get_cfg_default
from dassl.data.samplers import build_sampler
from dassl.data.transforms.transforms import AVAI_CHOICES, INTERPOLATION_MODES

import coop_cmp.trainers  # noqa: F401  (declares the methods)
from coop_cmp import cli
from coop_cmp.cli.settings import page
from coop_cmp.config import (
    METHODS,
    SETTINGS,
    add_settings,
    check_cfg,
    declare,
    declare_trainer,
    flatten,
    integer,
    is_free,
    number,
    read,
    row,
    several,
)
from coop_cmp.config import resolve as config
from coop_cmp.config.dassl_keys import INTERPOLATIONS, SAMPLERS, TRANSFORMS
from coop_cmp.config.defaults import image_size, method_of
from coop_cmp.errors import UserError
from tests.conftest import ROOT

MODELS = ROOT / "configs/models"


@pytest.fixture
def own_registry():
    """Declarations of a test are forgotten after it."""
    kept = [(table, dict(table)) for table in (SETTINGS, METHODS)]
    yield
    for table, content in kept:
        table.clear()
        table.update(content)


def extended():
    cfg = get_cfg_default()
    config.extend_cfg(cfg)
    return cfg


def test_every_key_of_the_tree_is_declared_with_dassls_own_default() -> None:
    plain = flatten(get_cfg_default())
    assert len(plain) == 91
    assert set(plain) <= set(SETTINGS)
    different = {k for k, v in plain.items() if SETTINGS[k].default != v}
    assert different == {"TEST.EVALUATOR"}
    assert set(flatten(extended())) == set(SETTINGS)


def test_the_choices_are_those_of_the_engine() -> None:
    assert list(TRANSFORMS) == AVAI_CHOICES
    assert set(INTERPOLATIONS) == set(INTERPOLATION_MODES)
    for name in SAMPLERS[:2]:
        assert type(build_sampler(name, data_source=[1, 2])).__name__ == name


def test_every_setting_says_what_it_means_in_a_line() -> None:
    for key, setting in SETTINGS.items():
        assert setting.doc, key
        assert "\n" not in setting.doc


def test_the_settings_are_shown_as_a_table(capsys) -> None:
    assert cli.dispatch(["settings"]) == 0
    assert "TRAINER.PRODA.ALPHA" in capsys.readouterr().out
    with pytest.raises(UserError, match='no setting begins with "OPTM"; did you mean "OPTIM"'):
        cli.dispatch(["settings", "OPTM"])
    assert page({"SEED": SETTINGS["SEED"]}).splitlines()[2] == (
        "| `SEED` | `-1` | seed of a deterministic run; -1: none "
        "(a whole number from 0 to 4294967295 or -1) |"
    )


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("OPTIM.LR", "1", 1.0),
        ("OPTIM.LR", 1, 1.0),
        ("OPTIM.LR", "1e-5", 1e-5),
        ("TRAINER.CMP.LAMBDA", "0", 0.0),
        ("OPTIM.MAX_EPOCH", "4.0", 4),
        ("SEED", "-1", -1),
        ("INPUT.SIZE", "(32, 32)", (32, 32)),
        ("INPUT.SIZE", [32, 32], (32, 32)),
        ("INPUT.TRANSFORMS", "['normalize']", ("normalize",)),
        ("INPUT.TRANSFORMS", "normalize", ("normalize",)),
        ("OPTIM.STEPSIZE", "5", (5,)),
        ("OPTIM.SHOT_EPOCHS", "[[1, 50], [2, 100]]", [[1, 50], [2, 100]]),
        ("OPTIM.DATASET_EPOCHS", [["ImageNet", 50]], [["ImageNet", 50]]),
        ("TRAINER.COOP.CSC", "true", True),
        ("DATASET.NAME", "123", "123"),
        ("TRAINER.COOP.CTX_INIT", "'a photo'", "a photo"),
        ("DATASET.TEMPLATE", "a {} of {{x}}", "a {} of {{x}}"),
        ("DATASET.TEMPLATE", "", ""),
    ],
)
def test_a_value_is_read_as_its_kind(key, given, value) -> None:
    found = read(key, given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "given", "message"),
    [
        ("OPTIM.LR", float("inf"), "got inf"),
        ("OPTIM.LR", True, "got True"),
        ("OPTIM.LR", 10**400, "above 0, got 1000"),
        ("OPTIM.MOMENTUM", 1, ">= 0 and below 1, got 1"),
        ("DATASET.TEMPLATE", "{0} {0}", "one {}"),
        ("OPTIM.MAX_EPOCH", float("nan"), "to 1000000, got nan$"),
        ("OPTIM.MAX_EPOCH", "1e999", "to 1000000, got '1e999'$"),
        ("TEST.FINAL_MODEL", "last_stp", 'did you mean "last_step"'),
        ("OPTIM.SHOT_EPOCHS", "[1, 50]", "each"),
        ("DATASET.TEMPLATE", "{} and {}", "one {}"),
        ("DATASET.TEMPLATE", "a {0!x}", "brace"),
        ("DATASET.TEMPLATE", "a {x.y}", "brace"),
        ("DATASET.NAME", "a\0b", "cannot be printed"),
        ("DATASET.NAME", None, "must be text, got None"),
        ("TRAINER.COOP.CSC", 1, "True or False, got 1"),
    ],
)
def test_what_a_key_does_not_take_is_refused_in_a_line(key, given, message) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(key, given, "grid.yaml")
    assert str(caught.value).startswith("grid.yaml: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_value_that_would_fill_the_memory_when_printed_is_cut() -> None:
    laughs: list = ["lol"]
    for _ in range(60):
        laughs = [laughs] * 9
    with pytest.raises(UserError) as caught:
        read("INPUT.TRANSFORMS", laughs)
    assert len(str(caught.value)) < 1000


def test_free_settings_are_those_that_change_no_number() -> None:
    free = {key for key in SETTINGS if is_free(key)}
    assert {"OUTPUT_DIR", "DATALOADER.NUM_WORKERS", "TRAIN.PRINT_FREQ", "DATASET.ROOT"} <= free
    assert not free & {"OPTIM.LR", "SEED", "DATASET.NAME", "TRAINER.COOP.N_CTX", "TEST.N_BINS"}
    assert not is_free("NO.SUCH.KEY")


def test_a_tree_is_checked_as_a_whole() -> None:
    cfg = extended()
    check_cfg(cfg)
    cfg.OPTIM.LR = -1.0
    with pytest.raises(UserError, match=r"OPTIM\.LR must be a number above 0, got -1\.0"):
        check_cfg(cfg)


def test_only_missing_settings_are_added_to_a_tree() -> None:
    cfg = get_cfg_default()
    add_settings(cfg, "TRAINER.CMP")
    assert "COOP" not in cfg.TRAINER
    assert "DEVICE" not in cfg
    cfg.TRAINER.CMP.LAMBDA = 0.5
    add_settings(cfg, "TRAINER.CMP")
    assert cfg.TRAINER.CMP.LAMBDA == 0.5


def test_a_list_that_is_a_default_is_never_shared() -> None:
    extended().OPTIM.SHOT_EPOCHS.append([1, 1])
    assert extended().OPTIM.SHOT_EPOCHS == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("OPTIM: 3", r'no config key "OPTIM"'),
        ("OPTIM: {LR: {A: 1}}", r"OPTIM\.LR must be .* got \{'A': 1\}"),
        ("1: 2", 'no config key "1"'),
        ("OPTIM: {LR: 1,\n LR: 2}", 'key "LR" is given twice, in lines 1 and 2'),
        ("a: &a [*a]", 'no config key "a"'),
    ],
)
def test_a_wrong_config_file_is_refused_with_its_path(content, message, tmp_path) -> None:
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        config.read_file(extended(), str(tmp_path / "a.yaml"))
    assert str(tmp_path / "a.yaml") in str(caught.value)


def test_settings_of_other_peoples_methods_are_read_as_their_defaults_are() -> None:
    cfg = extended()
    cfg.TRAINER.THEIRS = type(cfg)({"ALPHA": 1.0, "NAMES": ()})
    assert config.read_value(cfg, "TRAINER.THEIRS.ALPHA", "2") == 2.0
    assert config.read_value(cfg, "TRAINER.THEIRS.NAMES", ["a"]) == ("a",)
    with pytest.raises(UserError, match=r"THEIRS\.ALPHA must be a float, got 'x'"):
        config.read_value(cfg, "TRAINER.THEIRS.ALPHA", "x")


def test_a_wrong_declaration_is_refused(own_registry) -> None:
    with pytest.raises(ValueError, match="default is not a whole number >= 1"):
        declare("TRAINER.MINE", WIDTH=integer(0, "units", low=1))
    with pytest.raises(ValueError, match="declared twice"):
        declare("", SEED=integer(-1, "something else"))
    with pytest.raises(UserError, match=r"defaults of Mine: OPTIM\.LR must be"):
        declare_trainer("Mine", defaults={"OPTIM.LR": -1})


def test_lists_and_rows_say_what_their_items_are() -> None:
    assert several([], number(1.0, ""), "doc").expected == "a list, each a number"
    assert row(integer(1, ""), number(1.0, "", above=0, high=2)).expected == (
        "[a whole number, a number above 0 and at most 2]"
    )


def test_the_size_of_a_backbones_images_is_known_without_loading_it(tmp_path) -> None:
    assert image_size("ViT-B/16", MODELS) == (224, 224)
    assert image_size("ViT-L/14@336px", MODELS) == (336, 336)
    assert image_size("GlyphCLIP", MODELS) == (32, 32)
    assert image_size("NoSuchModel", MODELS) is None
    (tmp_path / "Bad.json").write_text("{")
    with pytest.raises(UserError, match="not a model config"):
        image_size("Bad", tmp_path)


def test_a_method_without_a_file_takes_its_defaults_and_the_backbones(own_registry) -> None:
    def settings(backbone: str, **options):
        given = {"TRAINER.NAME": "Mine_CMP", "MODEL.BACKBONE.NAME": backbone}
        return config.resolve(ROOT, {}, given, options)

    declare_trainer("Mine", defaults={"OPTIM.LR": 0.5, "INPUT.TRANSFORMS": ["random_flip"]})
    assert method_of("Mine_CMP") is METHODS["Mine"] is method_of("Mine")
    large = settings("ViT-L/14@336px")
    assert large.INPUT.SIZE == (336, 336)
    assert (large.OPTIM.NAME, large.OPTIM.LR) == ("sgd", 0.5)
    assert large.INPUT.TRANSFORMS == ("random_flip",)
    small = settings("GlyphCLIP")
    assert small.INPUT.TRANSFORMS == ("normalize",)
    assert small.DATALOADER.NUM_WORKERS == 0
    assert settings("GlyphCLIP", **{"OPTIM.LR": "0.25"}).OPTIM.LR == 0.25


def test_a_config_file_says_everything_itself() -> None:
    file = str(ROOT / "configs/trainers/CoOp/clip.yaml")
    given = {"TRAINER.NAME": "CoOp", "DATASET.NUM_SHOTS": 4}
    cfg = config.resolve(ROOT, {"--config-file": file}, given, {})
    assert cfg.OPTIM.MAX_EPOCH == 100
    assert cfg.OPTIM.WEIGHT_DECAY == 5e-4
    assert cfg.INPUT.INTERPOLATION == "bicubic"  # except for what depends on the backbone


def test_images_are_prepared_as_the_backbones_weights_want_them() -> None:
    def images(backbone: str, weights: str = "", **options: str) -> tuple:
        given = {"TRAINER.NAME": "CoOp", "MODEL.BACKBONE.NAME": backbone}
        given |= {"MODEL.BACKBONE.WEIGHTS": weights}
        file = str(ROOT / "configs/trainers/CoOp/clip.yaml")
        node = config.resolve(ROOT, {"--config-file": file}, given, options).INPUT
        return tuple(node.SIZE), node.PIXEL_MEAN[0], node.RESIZE_MODE

    assert images("RN50") == ((224, 224), 0.48145466, "shortest")
    assert images("ViT-L/14@336px") == ((336, 336), 0.48145466, "shortest")
    assert images("ViT-B-16-SigLIP-256", "webli") == ((256, 256), 0.5, "squash")
    chosen = {"INPUT.PIXEL_MEAN": "[0.1, 0.2, 0.3]"}
    assert images("ViT-B-16-SigLIP-256", "webli", **chosen)[1] == 0.1
