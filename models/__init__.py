"""The network: blocks, encoders, decoder, heads, and the adapter from the configuration."""

import utils  # noqa: F401  (sets the environment before TensorFlow is imported)
