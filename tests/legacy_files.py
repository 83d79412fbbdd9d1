"""Files as Keras 2 and NVIDIA's UNet3P folder left them: the old graphs, and the old layout.

The graphs are written from what is known of that folder: automatic layer names, convolutions made
encoder first, then module, decoder from level 4 to 1 and heads from fine to coarse, Keras's own
batch normalisation. They share nothing with `models`.
"""

from pathlib import Path

import h5py
import keras
import numpy as np
from keras import ops

L = keras.layers
VGG_CONVOLUTIONS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


def block(x, filters):
    x = L.Conv2D(filters, 3, padding="same")(x)
    return L.Activation("relu")(L.BatchNormalization()(x))


def encoder(x, backbone, filters):
    features = []
    for level, width in enumerate(filters, start=1):
        if level > 1:
            x = L.MaxPooling2D(2)(x)
        if backbone == "unet3plus":
            x = block(block(x, width), width)
        else:
            for number in range(1, VGG_CONVOLUTIONS[backbone][level - 1] + 1):
                name = f"block{level}_conv{number}"
                channels = width if level < 5 else filters[3]
                x = L.Conv2D(channels, 3, padding="same", activation="relu", name=name)(x)
        features.append(x)
    return features


def resample(x, factor):
    if factor < 1:
        return L.MaxPooling2D(round(1 / factor))(x)
    return x if factor == 1 else L.UpSampling2D(round(factor), interpolation="bilinear")(x)


def predecessor(variant, backbone, input_shape, classes, filters):
    """The old graph; outputs as a list, in the order d1 … d4, e5."""
    image = keras.Input(input_shape)
    encoded = encoder(image, backbone, filters)
    presence = None
    if variant.endswith("cgm"):
        presence = L.GlobalMaxPooling2D()(L.Conv2D(2, 1)(L.Dropout(0.5)(encoded[4])))
    decoded = list(encoded)
    for level in (4, 3, 2, 1):
        branches = []
        for source in (1, 2, 3, 4, 5):
            feature = (encoded if source <= level else decoded)[source - 1]
            branches.append(block(resample(feature, 2.0 ** (source - level)), filters[0]))
        decoded[level - 1] = block(L.Concatenate()(branches), 5 * filters[0])
    heads = decoded if variant != "unet3plus" else decoded[:1]
    logits = [L.Conv2D(classes, 3, padding="same")(feature) for feature in heads]
    outputs = []
    for level, x in enumerate(logits, start=1):
        x = resample(x, 2 ** (level - 1))
        if presence is not None:
            gate = ops.cast(ops.argmax(presence, axis=-1), "float32")
            x = x * gate[:, None, None, None]
        outputs.append(L.Activation("softmax" if classes > 1 else "sigmoid")(x))
    return keras.Model(image, outputs)


def set_attribute(group, name, values, parts):
    """A list of names, which Keras 2 splits over several attributes where it is long."""
    values = np.asarray([value.encode() for value in values])
    if parts == 1:
        group.attrs[name] = values
        return
    for number, part in enumerate(np.array_split(values, parts)):
        group.attrs[f"{name}{number}"] = part


def write_legacy_weights(path: Path, model, whole_model=False, parts=1) -> Path:
    """What `model.save_weights(path)`, or `model.save(path)`, wrote in Keras 2."""
    with h5py.File(path, "w") as file:
        group = file.create_group("model_weights") if whole_model else file
        set_attribute(group, "layer_names", [layer.name for layer in model.layers], parts)
        group.attrs["backend"], group.attrs["keras_version"] = "tensorflow", "2.10.0"
        for layer in model.layers:
            inside = group.create_group(layer.name)
            names = [f"{layer.name}/{weight.name}:0" for weight in layer.weights]
            set_attribute(inside, "weight_names", names, parts=1)
            for name, weight in zip(names, layer.weights, strict=True):
                inside.create_dataset(name, data=weight.numpy())
        top = group.create_group("top_level_model_weights")
        set_attribute(top, "weight_names", [], parts=1)
        if whole_model:
            file.attrs["model_config"] = '{"class_name": "Lambda"}'
            optimizer = file.create_group("optimizer_weights")
            set_attribute(optimizer, "weight_names", ["iteration:0"], parts=1)
            optimizer.create_dataset("iteration:0", data=7)
    return path
