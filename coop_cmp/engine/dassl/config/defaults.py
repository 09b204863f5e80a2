"""Default settings. What a key means is said beside it where the name does not."""

from yacs.config import CfgNode

cfg_default = CfgNode(
    {
        "VERSION": 1,
        "OUTPUT_DIR": "./output",
        "RESUME": "",  # directory of a run to continue
        "SEED": -1,  # negative: no seeding
        "USE_CUDA": True,
        "VERBOSE": True,
    }
)

cfg_default.INPUT = CfgNode(
    {
        "SIZE": (224, 224),
        "INTERPOLATION": "bilinear",
        "TRANSFORMS": (),
        "NO_TRANSFORM": False,
        "PIXEL_MEAN": [0.485, 0.456, 0.406],
        "PIXEL_STD": [0.229, 0.224, 0.225],
        "CROP_PADDING": 4,
        "RRCROP_SCALE": (0.08, 1.0),
        "CUTOUT_N": 1,
        "CUTOUT_LEN": 16,
        "GN_MEAN": 0.0,  # gaussian noise
        "GN_STD": 0.15,
        "RANDAUGMENT_N": 2,
        "RANDAUGMENT_M": 10,
        "COLORJITTER_B": 0.4,
        "COLORJITTER_C": 0.4,
        "COLORJITTER_S": 0.4,
        "COLORJITTER_H": 0.1,
        "RGS_P": 0.2,  # random greyscale
        "GB_P": 0.5,  # gaussian blur
        "GB_K": 21,
    }
)

cfg_default.DATASET = CfgNode(
    {
        "ROOT": "",
        "NAME": "",
        "SOURCE_DOMAINS": (),
        "TARGET_DOMAINS": (),
        "NUM_LABELED": -1,
        "NUM_SHOTS": -1,
        "VAL_PERCENT": 0.1,
        "STL10_FOLD": -1,
        "CIFAR_C_TYPE": "",
        "CIFAR_C_LEVEL": 1,
        "ALL_AS_UNLABELED": False,
    }
)

_TRAIN_LOADER = {"SAMPLER": "RandomSampler", "BATCH_SIZE": 32, "N_DOMAIN": 0, "N_INS": 16}
cfg_default.DATALOADER = CfgNode(
    {
        "NUM_WORKERS": 4,
        "K_TRANSFORMS": 1,  # augmented views per training image
        "RETURN_IMG0": False,  # also give the image without augmentation
        "TRAIN_X": dict(_TRAIN_LOADER),
        "TRAIN_U": {"SAME_AS_X": True, **_TRAIN_LOADER},
        "TEST": {"SAMPLER": "SequentialSampler", "BATCH_SIZE": 32},
    }
)

cfg_default.MODEL = CfgNode(
    {
        "INIT_WEIGHTS": "",
        "BACKBONE": {"NAME": "", "PRETRAINED": True},
        "HEAD": {
            "NAME": "",
            "HIDDEN_LAYERS": (),
            "ACTIVATION": "relu",
            "BN": True,
            "DROPOUT": 0.0,
        },
    }
)

cfg_default.OPTIM = CfgNode(
    {
        "NAME": "adam",
        "LR": 0.0003,
        "WEIGHT_DECAY": 5e-4,
        "MOMENTUM": 0.9,
        "SGD_DAMPNING": 0,
        "SGD_NESTEROV": False,
        "RMSPROP_ALPHA": 0.99,
        "ADAM_BETA1": 0.9,
        "ADAM_BETA2": 0.999,
        "STAGED_LR": False,  # layers outside NEW_LAYERS learn at LR * BASE_LR_MULT
        "NEW_LAYERS": (),
        "BASE_LR_MULT": 0.1,
        "LR_SCHEDULER": "single_step",
        "STEPSIZE": (-1,),  # -1: MAX_EPOCH
        "GAMMA": 0.1,
        "MAX_EPOCH": 10,
        "WARMUP_EPOCH": -1,  # below 1: no warm-up
        "WARMUP_TYPE": "linear",
        "WARMUP_CONS_LR": 1e-5,
        "WARMUP_MIN_LR": 1e-5,
        "WARMUP_RECOUNT": True,  # the main schedule starts at 0 after the warm-up
    }
)

cfg_default.TRAIN = CfgNode(
    {
        "CHECKPOINT_FREQ": 0,  # epochs between checkpoints; 0: the last epoch only
        "PRINT_FREQ": 10,
        "COUNT_ITER": "train_x",  # train_x, train_u or smaller_one: what ends an epoch
    }
)

cfg_default.TEST = CfgNode(
    {
        "EVALUATOR": "Classification",
        "PER_CLASS_RESULT": False,
        "COMPUTE_CMAT": False,
        "NO_TEST": False,
        "SPLIT": "test",
        "FINAL_MODEL": "last_step",  # or best_val
    }
)

cfg_default.TRAINER = CfgNode({"NAME": ""})
