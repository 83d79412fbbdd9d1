"""From slice files to batches."""

import utils  # noqa: F401  (sets the environment before TensorFlow is imported)
