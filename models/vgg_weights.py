"""ImageNet weights of the VGG encoders: Keras's own files, downloaded or given.

They were trained on blue, green and red grey values without their means. The means are taken off in
the graph (`models.backbones.scale_input`); the order of the channels is turned here, in the first
kernel.
"""

from pathlib import Path
from urllib.parse import urlsplit

import keras

from models.backbones import encoder_kernels
from models.h5_layers import Layers, check_shapes, read_h5_layers
from utils.config_rules import IMAGENET_FILTERS
from utils.errors import UserError

KEY = "MODEL.BACKBONE.WEIGHTS"
URL = (
    "https://storage.googleapis.com/tensorflow/keras-applications/{kind}/"
    "{kind}_weights_tf_dim_ordering_tf_kernels_notop.h5"
)
MD5 = {
    "vgg16": "6d6bbae143d832006294945121d1f1fc",
    "vgg19": "253f8cb515780f3b799900260a226db6",
}
CHANNELS = 3


def download_vgg_weights(kind: str) -> Path:
    """Keras's file for the encoder `kind`, from its cache or else from the internet.

    Raises:
        UserError: it cannot be downloaded; says what to do without internet.
    """
    url = URL.format(kind=kind)
    name = url.rsplit("/", 1)[-1]
    try:
        return Path(keras.utils.get_file(name, url, cache_subdir="models", file_hash=MD5[kind]))
    except Exception as error:  # Keras raises the bare class
        raise UserError(
            f"{KEY}=imagenet: the download from {urlsplit(url).hostname} failed ({error}). Fetch "
            f"{url} on another machine and give the file: {KEY}=<path of {name}>"
        ) from None


def read_vgg_weights(path: Path, kind: str) -> Layers:
    """The encoder's layers out of Keras's file without the classifier, for R, G, B input.

    Raises:
        UserError: the file is missing or damaged, or holds anything else.
    """
    layers = read_h5_layers(path, KEY)
    kernels = dict(encoder_kernels(kind, IMAGENET_FILTERS, CHANNELS))
    expected = {name: [shape, shape[-1:]] for name, shape in kernels.items()}
    check_shapes(layers, expected, f"{KEY}: {path} is not Keras's {kind} without the top")
    kernel, bias = layers["block1_conv1"]
    return {**layers, "block1_conv1": [kernel[:, :, ::-1], bias]}
