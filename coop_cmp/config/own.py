"""The settings that this project adds to Dassl's for all methods.

The settings of a method stand in its own file, those of a loss term beside the term.
"""

from __future__ import annotations

from coop_cmp.config.registry import declare
from coop_cmp.config.setting import choice, flag, integer, row, several, text

_epochs = integer(1, "", low=1)

declare(
    "",
    DEVICE=text("", "cpu, cuda, cuda:1 or mps; empty: auto-detected", free=True),
    LOGGER=several(
        ("tensorboard",),
        choice("tensorboard", ("tensorboard", "wandb"), ""),
        "loggers of scalars, settings and results",
        free=True,
    ),
)
declare(
    "INPUT",
    RESIZE_MODE=choice(
        "shortest",
        ("shortest", "squash"),
        "resizing of test images: scale the shorter side and crop, or scale both sides",
    ),
    UPRIGHT=flag(
        False,
        "turn images as their EXIF data says, make transparent parts white and scale 16-bit grey "
        "values; the published code does none of it",
    ),
    VIEW_SEED=choice(
        "image",
        ("image", "stream"),
        "source of random views: seed, epoch and image alone; or the stream of random numbers, as "
        "in Dassl and in every run without a seed",
    ),
    SHARED_VIEWS=flag(
        False, "encode the views of an epoch once for all runs with the same seed and transforms"
    ),
)
declare(
    "DATASET",
    SUBSAMPLE_CLASSES=choice(
        "all", ("all", "base", "new"), "all classes, or the first or second half of them"
    ),
    FOLD=text(
        "",
        "shots held out as validation images, such as 1/4 for the first quarter",
    ),
    ALLOW_NEW_SPLIT=flag(False, "make a split if the published file is missing"),
    TEMPLATE=text("", "the prompt; empty: the one in coop_cmp/clip/prompts.py", is_template=True),
    CLASSNAMES=several((), text("", ""), "names of an image folder's classes, in their order"),
    TITLE=text("", "the data set's name in tables and pages; empty: DATASET.NAME"),
    CONTENT=text("", "digest of an image folder's images and split, set automatically"),
)
declare(
    "DATALOADER",
    CACHE_MB=integer(
        1024,
        "MB of decoded training images, in all processes together; each process keeps the images "
        "it was given, so all of them stay decoded if they fit into its share",
        low=0,
        high=2**30,
        free=True,
    ),
)
declare(
    "MODEL",
    TEXT_ENCODER=choice(
        "shared",
        ("shared", "naive"),
        "text encoder: without redundant tokens, or every token of every class as CoOp",
    ),
    TEXT_BUDGET_MB=integer(
        0,
        "MB for the text tower's activations, beyond which passes are cut into chunks; 0: half of "
        "a GPU's free memory, elsewhere 4096",
        low=0,
        free=True,
    ),
    COMPILE=choice(
        "",
        ("", "default", "reduce-overhead", "max-autotune"),
        "mode of torch.compile for the text tower; reduce-overhead: CUDA graphs; empty: none",
    ),
    FEATURE_STORE=text(
        "auto", "folder of stored image features; auto: in the user's cache; empty: none", free=True
    ),
    FEATURE_STORE_MB=integer(
        10000,
        "MB of stored random views, of training or test images; the least recently used are "
        "evicted",
        low=1,
        high=2**30,
        free=True,
    ),
    SCORES=choice(
        "softmax",
        ("softmax", "sigmoid"),
        "probabilities in tests and predictions: shares of the classes, or one of each class by "
        "itself, for models with a logit bias such as SigLIP",
    ),
    LEARNABLE_DTYPE=choice(
        "fp32",
        ("fp32", "model"),
        "precision of prompts under fp16; model: that of the model, as CoOp",
    ),
)
declare(
    "MODEL.BACKBONE",
    WEIGHTS=text("", "weights: an open_clip tag or a file; empty: bundled, else openai"),
)
declare(
    "OPTIM",
    SHOT_EPOCHS=several([], row(_epochs, _epochs), "pairs [shots, epochs] that set MAX_EPOCH"),
    DATASET_EPOCHS=several(
        [], row(text("", ""), _epochs), "pairs [data set, epochs], which take precedence"
    ),
)
declare(
    "TEST",
    N_BINS=integer(10, "bins of the calibration errors", low=1, high=10000),
    BIN_CLOSED=choice("right", ("right", "left"), "closed end of a bin"),
)
