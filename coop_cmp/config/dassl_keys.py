"""The settings of Dassl. The engine in this package takes its defaults and choices from here."""

from __future__ import annotations

from coop_cmp.config.registry import declare
from coop_cmp.config.setting import choice, flag, integer, number, several, text

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
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
SAMPLERS = (
    "RandomSampler",
    "SequentialSampler",
    "RandomDomainSampler",
    "SeqDomainSampler",
    "RandomClassSampler",
)
OPTIMIZERS = ("adam", "amsgrad", "sgd", "rmsprop", "radam", "adamw")
SCHEDULES = ("single_step", "multi_step", "cosine")
WARMUPS = ("linear", "constant")

_any_text = text("", "")
DASSL_KEYS = declare(
    "",
    VERSION=integer(1, "version of the settings' layout", free=True),
    OUTPUT_DIR=text("./output", "directory of the log, the checkpoints and the results", free=True),
    RESUME=text("", "directory of a run to continue", free=True),
    SEED=integer(-1, "seed of a deterministic run; -1: none", low=0, high=2**32 - 1, also=(-1,)),
    USE_CUDA=flag(True, "use a GPU if DEVICE is empty and there is one", free=True),
    VERBOSE=flag(True, "print the model", free=True),
)
DASSL_KEYS |= declare(
    "INPUT",
    SIZE=several((224, 224), integer(1, "", low=1, high=4096), "height and width", length=2),
    INTERPOLATION=choice("bilinear", INTERPOLATIONS, "interpolation of resized images"),
    TRANSFORMS=several((), choice("normalize", TRANSFORMS, ""), "names of the training transforms"),
    NO_TRANSFORM=flag(False, "return images untransformed"),
    PIXEL_MEAN=several(
        [0.485, 0.456, 0.406], number(0.0, ""), "mean that normalize subtracts", length=3
    ),
    PIXEL_STD=several(
        [0.229, 0.224, 0.225],
        number(1.0, "", above=0),
        "standard deviation that normalize divides by",
        length=3,
    ),
    CROP_PADDING=integer(4, "pixels around an image before random_crop", low=0, high=4096),
    RRCROP_SCALE=several(
        (0.08, 1.0),
        number(1.0, "", above=0, high=1),
        "smallest and largest share of the area that random_resized_crop keeps",
        length=2,
    ),
    CUTOUT_N=integer(1, "holes that cutout makes", low=0, high=10000),
    CUTOUT_LEN=integer(16, "side of cutout's holes in pixels", low=0, high=4096),
    GN_MEAN=number(0.0, "mean of gaussian_noise"),
    GN_STD=number(0.15, "standard deviation of gaussian_noise", low=0),
    RANDAUGMENT_N=integer(2, "operations of randaugment", low=0, high=100),
    RANDAUGMENT_M=integer(10, "strength of randaugment's operations", low=0, high=30),
    COLORJITTER_B=number(0.4, "change of brightness by colorjitter", low=0),
    COLORJITTER_C=number(0.4, "change of contrast by colorjitter", low=0),
    COLORJITTER_S=number(0.4, "change of saturation by colorjitter", low=0),
    COLORJITTER_H=number(0.1, "change of hue by colorjitter", low=0, high=0.5),
    RGS_P=number(0.2, "probability of randomgrayscale", low=0, high=1),
    GB_P=number(0.5, "probability of gaussian_blur", low=0, high=1),
    GB_K=integer(21, "kernel of gaussian_blur in pixels, an odd number", low=1, high=4095),
)
DASSL_KEYS |= declare(
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
    CIFAR_C_LEVEL=integer(1, "severity of CIFAR-C's corruption", low=1, high=5),
    ALL_AS_UNLABELED=flag(False, "use labelled images as unlabelled ones too"),
)
DASSL_KEYS |= declare(
    "DATALOADER",
    NUM_WORKERS=integer(4, "processes that load images", low=0, high=1024, free=True),
    K_TRANSFORMS=integer(1, "augmented views per training image", low=1, high=1000),
    RETURN_IMG0=flag(False, "also return the image without augmentation"),
)
_loader = {
    "SAMPLER": choice("RandomSampler", SAMPLERS, "how images are drawn"),
    "BATCH_SIZE": integer(32, "images per step", low=1, high=2**20),
    "N_DOMAIN": integer(0, "domains per batch, for the domain samplers; 0: all", low=0),
    "N_INS": integer(16, "images per class, for RandomClassSampler", low=1),
}
DASSL_KEYS |= declare("DATALOADER.TRAIN_X", **_loader)
DASSL_KEYS |= declare(
    "DATALOADER.TRAIN_U",
    SAME_AS_X=flag(True, "draw unlabelled images as labelled ones are drawn"),
    **_loader,
)
DASSL_KEYS |= declare(
    "DATALOADER.TEST",
    SAMPLER=choice("SequentialSampler", SAMPLERS, "how images are drawn"),
    BATCH_SIZE=integer(32, "images per batch", low=1, high=2**20),
)
DASSL_KEYS |= declare("MODEL", INIT_WEIGHTS=text("", "a checkpoint to start from"))
DASSL_KEYS |= declare(
    "MODEL.BACKBONE",
    NAME=text("", "the CLIP model, e.g. ViT-B/16"),
    PRETRAINED=flag(True, "pre-trained weights, for Dassl's own backbones"),
)
DASSL_KEYS |= declare(
    "MODEL.HEAD",
    NAME=text("", "the head, for Dassl's own trainers"),
    HIDDEN_LAYERS=several((), integer(1, "", low=1), "widths of the head's layers"),
    ACTIVATION=choice("relu", ("relu", "leaky_relu"), "activation between the head's layers"),
    BN=flag(True, "batch norm between the head's layers"),
    DROPOUT=number(0.0, "share of dropped features", low=0, high=1),
)
DASSL_KEYS |= declare(
    "OPTIM",
    NAME=choice("adam", OPTIMIZERS, "the optimiser"),
    LR=number(0.0003, "the learning rate", above=0),
    WEIGHT_DECAY=number(5e-4, "the weight decay", low=0),
    MOMENTUM=number(0.9, "momentum of sgd and rmsprop", low=0, below=1),
    SGD_DAMPNING=number(0, "dampening of sgd's momentum", low=0, high=1),
    SGD_NESTEROV=flag(False, "Nesterov's momentum"),
    RMSPROP_ALPHA=number(0.99, "smoothing of rmsprop", low=0, below=1),
    ADAM_BETA1=number(0.9, "first decay of the adam family", low=0, below=1),
    ADAM_BETA2=number(0.999, "second decay of the adam family", low=0, below=1),
    STAGED_LR=flag(False, "layers outside NEW_LAYERS learn at LR * BASE_LR_MULT"),
    NEW_LAYERS=several((), _any_text, "layers that learn at LR under STAGED_LR"),
    BASE_LR_MULT=number(0.1, "factor of the rate of all other layers under STAGED_LR", low=0),
    LR_SCHEDULER=choice("single_step", SCHEDULES, "how the rate changes"),
    STEPSIZE=several(
        (-1,),
        integer(1, "", low=1, also=(-1,)),
        "epochs between steps (single_step; -1: MAX_EPOCH) or of the steps (multi_step)",
    ),
    GAMMA=number(0.1, "factor of each step", above=0, high=1),
    MAX_EPOCH=integer(10, "epochs of training", low=1, high=10**6),
    WARMUP_EPOCH=integer(-1, "epochs of warm-up; below 1: none", low=-1, high=10**6),
    WARMUP_TYPE=choice("linear", WARMUPS, "how the rate starts"),
    WARMUP_CONS_LR=number(1e-5, "rate of a constant warm-up", low=0),
    WARMUP_MIN_LR=number(1e-5, "first rate of a linear warm-up", low=0),
    WARMUP_RECOUNT=flag(True, "the main schedule starts at 0 after the warm-up"),
)
DASSL_KEYS |= declare(
    "TRAIN",
    CHECKPOINT_FREQ=integer(
        0, "epochs between checkpoints; 0: the last epoch only", low=0, free=True
    ),
    PRINT_FREQ=integer(10, "steps between prints", low=1, free=True),
    COUNT_ITER=choice("train_x", ("train_x", "train_u", "smaller_one"), "what ends an epoch"),
)
DASSL_KEYS |= declare(
    "TEST",
    EVALUATOR=text("CalibrationEvaluator", "evaluator that computes and stores the results"),
    PER_CLASS_RESULT=flag(False, "print the accuracy of every class", free=True),
    COMPUTE_CMAT=flag(False, "store the confusion matrix", free=True),
    NO_TEST=flag(False, "train only"),
    SPLIT=choice("test", ("test", "val"), "the split that is tested"),
    FINAL_MODEL=choice(
        "last_step", ("last_step", "best_val"), "the model that is tested after training"
    ),
)
DASSL_KEYS |= declare("TRAINER", NAME=text("", "the method, e.g. CoOp or CoOp_CMP"))
