"""What watches the training."""

import utils  # noqa: F401  (sets the environment before TensorFlow is imported)
