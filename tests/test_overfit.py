"""Every variant can learn a single batch by heart."""

import numpy as np
import pytest

from data_generators.data_generator import get_data_generator
from models.inference import most_likely_class
from models.model import compile_model, inference_view, prepare_model
from models.unet3plus import VARIANTS
from utils.runtime import setup_runtime

STEPS = 150


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_batch_is_learned_by_heart(slices, make_cfg, variant):
    cfg = make_cfg(MODEL={"TYPE": variant}, HYPER_PARAMETERS={"LEARNING_RATE": 1e-2})
    runtime = setup_runtime(cfg)
    images, masks = get_data_generator(cfg, "TRAIN", runtime).dataset[0]
    model = prepare_model(cfg)
    compile_model(model, cfg, runtime)
    model.fit(
        np.tile(images, (STEPS, 1, 1, 1)), np.tile(masks, (STEPS, 1, 1)),
        batch_size=len(images), shuffle=False, verbose=0,
    )  # fmt: skip
    found = most_likely_class(inference_view(model).predict_on_batch(images))
    both = np.count_nonzero(found & masks)
    assert 2 * both / (np.count_nonzero(found) + np.count_nonzero(masks)) > 0.98
