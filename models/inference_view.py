"""A copy of a network for inference, with batch normalisation folded into the convolutions."""

import keras
import numpy as np


def fold_batch_norm(model: keras.Model) -> keras.Model:
    """A network with the outputs that `model` has in inference, in fewer steps.

    The batch normalisation of a convolution unit becomes part of the unit's kernel and bias,
    kernel · γ / σ and (bias - μ) · γ / σ + β, with moving mean μ and σ² = moving variance + ε.
    Other layers are copied. The copy has variables of its own: it holds the weights as they are
    now, and later changes of `model` do not reach it.
    """
    norms = {
        layer.name: layer
        for layer in model.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    }
    copy = keras.models.clone_model(
        model,
        clone_function=_without_weights,
        call_function=lambda layer, x, *args, **kwargs: (
            x if layer.name in norms else layer(x, *args, **kwargs)
        ),
    )
    for layer in copy.layers:
        if layer.weights:
            weights = model.get_layer(layer.name).get_weights()
            norm = norms.get(layer.name.replace("conv", "bn"))  # as `conv_unit` names the two
            layer.set_weights(_folded(weights, norm) if norm else weights)
    return copy


def _without_weights(layer: keras.layers.Layer) -> keras.layers.Layer:
    """The same layer anew; zeros instead of random weights, as those would take time to draw."""
    config = layer.get_config()
    config.update({key: "zeros" for key in config if key.endswith("_initializer")})
    return type(layer).from_config(config)


def _folded(weights: list[np.ndarray], norm: keras.layers.BatchNormalization) -> list[np.ndarray]:
    kernel, bias = weights
    gamma, beta, mean, variance = (values.astype(np.float64) for values in norm.get_weights())
    scale = gamma / np.sqrt(variance + norm.epsilon)
    return [kernel * scale, (bias - mean) * scale + beta]
