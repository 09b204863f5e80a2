"""The settings that all methods share: Dassl's, and what this project adds to them.

The settings of a method stand in its own file, those of a loss term beside the term.
"""

from __future__ import annotations

from coop_cmp.config.kinds import (
    Choice,
    Integer,
    Number,
    Row,
    Template,
    Text,
    choice,
    flag,
    integer,
    number,
    several,
    text,
)
from coop_cmp.config.registry import declare

TRANSFORMS = (
    "random_flip",
    "random_resized_crop",
    "normalize",
    "instance_norm",
    "random_crop",
    "random_translation",
    "center_crop",
    "cutout",
    "imagenet_policy",
    "cifar10_policy",
    "svhn_policy",
    "randaugment",
    "randaugment_fixmatch",
    "randaugment2",
    "gaussian_noise",
    "colorjitter",
    "randomgrayscale",
    "gaussian_blur",
)
SAMPLERS = (
    "RandomSampler",
    "SequentialSampler",
    "RandomDomainSampler",
    "SeqDomainSampler",
    "RandomClassSampler",
)
OPTIMIZERS = ("adam", "amsgrad", "sgd", "rmsprop", "radam", "adamw")
_any_text = Text(default="")
_epochs = Integer(default=1, low=1)

declare(
    "",
    VERSION=integer(1, "of the settings' layout", free=True),
    OUTPUT_DIR=text("./output", "where the log, the checkpoints and the results go", free=True),
    RESUME=text("", "directory of a run to continue", free=True),
    SEED=integer(-1, "of a deterministic run; -1: none", low=0, high=2**32 - 1, also=(-1,)),
    USE_CUDA=flag(True, "take a GPU where DEVICE is empty and there is one", free=True),
    VERBOSE=flag(True, "print the model", free=True),
    DEVICE=text("", "cpu, cuda, cuda:1 or mps; empty: the best there is", free=True),
    LOGGER=several(
        ("tensorboard",),
        Choice(default="", choices=("tensorboard", "wandb")),
        "where training can be followed",
        free=True,
    ),
)
declare(
    "INPUT",
    SIZE=several((224, 224), Integer(default=1, low=1, high=4096), "height and width", length=2),
    INTERPOLATION=choice("bilinear", ("bilinear", "bicubic", "nearest"), "of resized images"),
    TRANSFORMS=several(
        (), Choice(default="", choices=TRANSFORMS), "names of the training transforms"
    ),
    UPRIGHT=flag(
        False,
        "turn images as their EXIF data says, make transparent parts white and scale 16-bit grey "
        "values; the published code does none of it",
    ),
    NO_TRANSFORM=flag(False, "hand out images as they are"),
    PIXEL_MEAN=several(
        [0.485, 0.456, 0.406], Number(default=0.0), "what normalize subtracts", length=3
    ),
    PIXEL_STD=several(
        [0.229, 0.224, 0.225], Number(default=1.0, above=0), "what it divides by", length=3
    ),
    CROP_PADDING=integer(4, "pixels around an image before random_crop", low=0, high=4096),
    RRCROP_SCALE=several(
        (0.08, 1.0),
        Number(default=1.0, above=0, high=1),
        "least and largest share of the area that random_resized_crop keeps",
        length=2,
    ),
    CUTOUT_N=integer(1, "holes that cutout makes", low=0, high=10000),
    CUTOUT_LEN=integer(16, "their side in pixels", low=0, high=4096),
    GN_MEAN=number(0.0, "mean of gaussian_noise"),
    GN_STD=number(0.15, "its standard deviation", low=0),
    RANDAUGMENT_N=integer(2, "operations of randaugment", low=0, high=100),
    RANDAUGMENT_M=integer(10, "their strength", low=0, high=30),
    COLORJITTER_B=number(0.4, "change of brightness by colorjitter", low=0),
    COLORJITTER_C=number(0.4, "of contrast", low=0),
    COLORJITTER_S=number(0.4, "of saturation", low=0),
    COLORJITTER_H=number(0.1, "of hue", low=0, high=0.5),
    RGS_P=number(0.2, "probability of randomgrayscale", low=0, high=1),
    GB_P=number(0.5, "probability of gaussian_blur", low=0, high=1),
    GB_K=integer(21, "its kernel in pixels, an odd number", low=1, high=4095),
    VIEW_SEED=choice(
        "image",
        ("image", "stream"),
        "random views depend on seed, epoch and image alone; stream: on all that drew random "
        "numbers before, as in Dassl and in every run without a seed",
    ),
    SHARED_VIEWS=flag(
        False, "encode the views of an epoch once for all runs with the same seed and transforms"
    ),
    CACHED_VIEWS=integer(
        0, "fixed views of each training image; 0: a fresh one each time", low=0, high=10000
    ),
)
declare(
    "DATASET",
    ROOT=text("", "folder that holds the data sets", free=True),
    NAME=text("", "the data set, by its registered name"),
    SOURCE_DOMAINS=several((), _any_text, "source domains, for data sets that have them"),
    TARGET_DOMAINS=several((), _any_text, "target domains, for data sets that have them"),
    NUM_LABELED=integer(-1, "labelled images of a semi-supervised data set", low=-1),
    NUM_SHOTS=integer(-1, "training images per class; -1: all", low=1, also=(-1,)),
    VAL_PERCENT=number(0.1, "share of the training images for validation", low=0, below=1),
    STL10_FOLD=integer(-1, "fold of STL-10", low=-1, high=9),
    CIFAR_C_TYPE=text("", "corruption of CIFAR-C"),
    CIFAR_C_LEVEL=integer(1, "its severity", low=1, high=5),
    ALL_AS_UNLABELED=flag(False, "labelled images are unlabelled ones too"),
    SUBSAMPLE_CLASSES=choice("all", ("all", "base", "new"), "or the first or second half of them"),
    FOLD=text("", "such as 1/4: hold the first quarter of the shots out, as validation images"),
    ALLOW_NEW_SPLIT=flag(False, "make a split where the published file is missing"),
    TEMPLATE=Template(default="", doc="the prompt; empty: coop_cmp/clip/templates.py has it"),
    CLASSNAMES=several((), _any_text, "names of an image folder's classes, in their order"),
)
declare(
    "DATALOADER",
    NUM_WORKERS=integer(4, "processes that load images", low=0, high=1024, free=True),
    CACHE_MB=integer(
        1024,
        "of decoded training images, in all processes together; each process keeps those that it "
        "was given, so all of them stay decoded if they fit into its share",
        low=0,
        high=2**30,
        free=True,
    ),
    K_TRANSFORMS=integer(1, "augmented views per training image", low=1, high=1000),
    RETURN_IMG0=flag(False, "also give the image without augmentation"),
)
_loader = {
    "SAMPLER": choice("RandomSampler", SAMPLERS, "how images are drawn"),
    "BATCH_SIZE": integer(32, "images per step", low=1, high=2**20),
    "N_DOMAIN": integer(0, "domains per batch, for the domain samplers; 0: all", low=0),
    "N_INS": integer(16, "images per class, for RandomClassSampler", low=1),
}
declare("DATALOADER.TRAIN_X", **_loader)
declare(
    "DATALOADER.TRAIN_U",
    SAME_AS_X=flag(True, "unlabelled images are drawn as labelled ones are"),
    **_loader,
)
declare(
    "DATALOADER.TEST",
    SAMPLER=choice("SequentialSampler", SAMPLERS, "how images are drawn"),
    BATCH_SIZE=integer(32, "images at a time", low=1, high=2**20),
)
declare(
    "MODEL",
    INIT_WEIGHTS=text("", "a checkpoint to start from"),
    TEXT_ENCODER=choice(
        "shared", ("shared", "naive"), "naive: every token of every class, as CoOp does"
    ),
    TEXT_BUDGET_MB=integer(
        0,
        "of the text tower's activations; more is cut into chunks; 0: half of a GPU's free memory, "
        "elsewhere 4096",
        low=0,
        free=True,
    ),
    COMPILE=choice(
        "",
        ("", "default", "reduce-overhead", "max-autotune"),
        "mode of torch.compile for the text tower; reduce-overhead: CUDA graphs; empty: none",
    ),
    FEATURE_STORE=text(
        "auto", "a folder; auto: in the user's cache; empty: no stored features", free=True
    ),
    FEATURE_STORE_MB=integer(
        10000,
        "of random views in it, in training or of a test image; the longest unused give way",
        low=1,
        high=2**30,
        free=True,
    ),
    LEARNABLE_DTYPE=choice(
        "fp32", ("fp32", "model"), "under fp16, model keeps prompts in fp16 as CoOp does"
    ),
)
declare(
    "MODEL.BACKBONE",
    NAME=text("", "the CLIP model, e.g. ViT-B/16"),
    PRETRAINED=flag(True, "for Dassl's own backbones"),
    WEIGHTS=text("", "an open_clip tag or a file; empty: bundled, else openai"),
)
declare(
    "MODEL.HEAD",
    NAME=text("", "the head, for Dassl's own trainers"),
    HIDDEN_LAYERS=several((), Integer(default=1, low=1), "widths of its layers"),
    ACTIVATION=choice("relu", ("relu", "leaky_relu"), "between them"),
    BN=flag(True, "batch norm between them"),
    DROPOUT=number(0.0, "share of dropped features", low=0, high=1),
)
declare(
    "OPTIM",
    NAME=choice("adam", OPTIMIZERS, "the optimiser"),
    LR=number(0.0003, "the learning rate", above=0),
    WEIGHT_DECAY=number(5e-4, "the weight decay", low=0),
    MOMENTUM=number(0.9, "of sgd and rmsprop", low=0, below=1),
    SGD_DAMPNING=number(0.0, "of sgd's momentum", low=0, high=1),
    SGD_NESTEROV=flag(False, "Nesterov's momentum"),
    RMSPROP_ALPHA=number(0.99, "smoothing of rmsprop", low=0, below=1),
    ADAM_BETA1=number(0.9, "first decay of the adam family", low=0, below=1),
    ADAM_BETA2=number(0.999, "second decay of the adam family", low=0, below=1),
    STAGED_LR=flag(False, "layers outside NEW_LAYERS learn at LR * BASE_LR_MULT"),
    NEW_LAYERS=several((), _any_text, "layers that learn at LR under STAGED_LR"),
    BASE_LR_MULT=number(0.1, "rate of all other layers under STAGED_LR", low=0),
    LR_SCHEDULER=choice(
        "single_step", ("single_step", "multi_step", "cosine"), "how the rate changes"
    ),
    STEPSIZE=several(
        (-1,), Integer(default=1, low=1, also=(-1,)), "epochs between or of its steps; -1: all"
    ),
    GAMMA=number(0.1, "factor of each step", above=0, high=1),
    MAX_EPOCH=integer(10, "epochs of training", low=1, high=10**6),
    WARMUP_EPOCH=integer(-1, "epochs of warm-up; below 1: none", low=-1, high=10**6),
    WARMUP_TYPE=choice("linear", ("linear", "constant"), "how the rate starts"),
    WARMUP_CONS_LR=number(1e-5, "rate of a constant warm-up", low=0),
    WARMUP_MIN_LR=number(1e-5, "first rate of a linear warm-up", low=0),
    WARMUP_RECOUNT=flag(True, "the main schedule starts at 0 after the warm-up"),
    SHOT_EPOCHS=several(
        [],
        Row(default=[1, 1], of=(Integer(default=1, low=1), _epochs)),
        "pairs [shots, epochs] that set MAX_EPOCH",
    ),
    DATASET_EPOCHS=several(
        [],
        Row(default=["", 1], of=(_any_text, _epochs)),
        "pairs [data set, epochs], which come first",
    ),
)
declare(
    "TRAIN",
    CHECKPOINT_FREQ=integer(
        0, "epochs between checkpoints; 0: the last epoch only", low=0, free=True
    ),
    PRINT_FREQ=integer(10, "steps between prints", low=1, free=True),
    COUNT_ITER=choice("train_x", ("train_x", "train_u", "smaller_one"), "what ends an epoch"),
)
declare(
    "TEST",
    EVALUATOR=text("CalibrationEvaluator", "what computes and stores the results"),
    PER_CLASS_RESULT=flag(False, "print the accuracy of every class", free=True),
    COMPUTE_CMAT=flag(False, "store the confusion matrix", free=True),
    NO_TEST=flag(False, "train only"),
    SPLIT=choice("test", ("test", "val"), "what is tested"),
    FINAL_MODEL=choice(
        "last_step", ("last_step", "best_val"), "the model that is tested after training"
    ),
    N_BINS=integer(10, "bins of the calibration errors", low=1, high=10000),
    BIN_CLOSED=choice("right", ("right", "left"), "the end of a bin that belongs to it"),
)
declare("TRAINER", NAME=text("", "the method, e.g. CoOp or CoOp_CMP"))
