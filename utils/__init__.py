"""What every part of the project uses: configuration, runtime, paths, images, logging.

Importing it sets the environment that TensorFlow reads once, at its own import; the packages that
use Keras therefore import this one first.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "0"  # NGC images default to Keras 2
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
