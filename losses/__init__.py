"""The hybrid loss of UNet 3+, its terms, and the Dice coefficient."""

import utils  # noqa: F401  (sets the environment before TensorFlow is imported)
