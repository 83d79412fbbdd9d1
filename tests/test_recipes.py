"""Every recipe composes on the command line's terms, is valid, and trains a step."""

import pytest
from omegaconf import OmegaConf

from configs import CONFIG_DIR
from train import train
from utils.cli import compose_config

RECIPES = sorted(path.stem for path in (CONFIG_DIR / "experiment").glob("*.yaml"))
TINY = [
    "INPUT.HEIGHT=32", "INPUT.WIDTH=32", "MODEL.FILTERS=[4,4,4,4,4]", "VERBOSE=0",
    "HYPER_PARAMETERS.EPOCHS=2", "HYPER_PARAMETERS.BATCH_SIZE=2",
    "HYPER_PARAMETERS.STEPS_PER_EPOCH=1", "USE_MULTI_GPUS.VALUE=False",
    *(
        f"DATASET.{split}.{key}=data/{split.lower()}/{folder}"
        for split in ("TRAIN", "VAL")
        for key, folder in (("IMAGES_PATH", "images"), ("MASK_PATH", "mask"))
    ),
]  # fmt: skip
# What makes a recipe what its name says
ESSENCE = {
    "paper": {
        "MODEL.TYPE": "unet3plus_deepsup_cgm", "MODEL.BACKBONE.TYPE": "unet3plus",
        "OUTPUT.CLASSES": 1, "LOSS.TYPE": "unet3p_hybrid", "LOSS.MS_SSIM.ENABLED": True,
        "HYPER_PARAMETERS.OPTIMIZER": "sgd", "DATA_PREPARATION.FIT": "crop", "INPUT.HEIGHT": 320,
    },
    "nvidia": {
        "MODEL.TYPE": "unet3plus", "MODEL.BACKBONE.TYPE": "vgg19", "OUTPUT.CLASSES": 2,
        "LOSS.TYPE": "reference", "HYPER_PARAMETERS.OPTIMIZER": "adam",
        "HYPER_PARAMETERS.LEARNING_RATE": 5e-5, "HYPER_PARAMETERS.BATCH_SIZE": 16,
        "HYPER_PARAMETERS.EPOCHS": 100, "DATA_PREPARATION.FIT": "resize",
        "HYPER_PARAMETERS.LEARNING_RATE_SCHEDULE.TYPE": "constant",
    },
    "lits": {
        "LOSS.DEEP_SUPERVISION_WEIGHTS": [1.0, 0.5, 0.25, 0.125, 0.0625],
        "OUTPUT.CLASSES": 1, "AUGMENTATION.ENABLED": True, "HYPER_PARAMETERS.OPTIMIZER": "adamw",
    },
    "liver_tumour": {
        "OUTPUT.CLASSES": 3, "DATA_PREPARATION.LABELS": "liver_and_tumour",
        "AUGMENTATION.ENABLED": True, "HYPER_PARAMETERS.OPTIMIZER": "adamw",
        "LOSS.IOU.ABSENT_CLASSES": False, "LOSS.MS_SSIM.ENABLED": False,
    },
    "phantom_tumour": {
        "OUTPUT.CLASSES": 3, "DATA_PREPARATION.LABELS": "liver_and_tumour",
        "LOSS.IOU.ABSENT_CLASSES": False, "RESULTS_PATH": "demo/results", "INPUT.HEIGHT": 96,
    },
    "phantom": {"MODEL.TYPE": "unet3plus_deepsup_cgm", "RESULTS_PATH": "demo/results"},
}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_hold_what_their_name_says(recipe):
    cfg = compose_config(f"+experiment={recipe}")
    for key, value in ESSENCE[recipe].items():
        assert OmegaConf.select(cfg, key) == value, key


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_train(recipe, slices):
    result = train(compose_config(f"+experiment={recipe}", *TINY, f"WORK_DIR={slices}"))
    assert result["epochs"] == 2
    assert 0 <= result["best"]["val_dice_coef"] <= 1
