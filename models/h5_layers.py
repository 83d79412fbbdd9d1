"""Weight files in the layout of Keras 2 (`.h5`, `.hdf5`), read as tensors and nothing else.

A group per layer holds its tensors; attributes list the names of both in order. A file of a whole
model has the same under "model_weights", beside a configuration and an optimizer that stay unread:
no code can come out of such a file.
"""

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

import h5py
import keras
import numpy as np

from utils.errors import UserError

Layers = dict[str, list[np.ndarray]]  # a layer's tensors by its name


def read_h5_layers(path: Path, key: str) -> Layers:
    """The float32 tensors of every layer that has some, in the order of the file.

    Args:
        path: of the file.
        key: what names it to the user, for messages.

    Raises:
        UserError: the file is missing, damaged or not in this layout.
    """
    try:
        with h5py.File(path) as file:
            group = file.get("model_weights", file)
            layers = {name: _tensors(_inside(group, name)) for name in _names(group, "layer_names")}
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{key}: {path} cannot be read as a Keras 2 weight file ({error})"
        ) from None
    if not any(layers.values()):
        raise UserError(f"{key}: {path} has no layers in the layout of Keras 2")
    return {name: tensors for name, tensors in layers.items() if tensors}


def check_shapes(layers: Layers, expected: dict[str, list[tuple[int, ...]]], what: str) -> None:
    """Compare the layers and the shapes of their tensors with what is expected.

    Raises:
        UserError: lists every difference; `what` names file and network.
    """
    found = {name: [tensor.shape for tensor in tensors] for name, tensors in layers.items()}
    problems = [
        f"{name}: found {found.get(name, 'no such layer')}; expected {expected.get(name, 'none')}"
        for name in {**expected, **found}
        if found.get(name) != expected.get(name)
    ]
    if problems:
        raise UserError.listing(what, problems)


def set_layers(model: keras.Model, layers: Layers) -> None:
    """Put tensors into the layers of `model` that bear their names."""
    for name, tensors in layers.items():
        model.get_layer(name).set_weights(tensors)


def _names(group: h5py.Group, attribute: str) -> Iterator[str]:
    """The names in an attribute; long lists are split over attribute0, attribute1, …"""
    numbered = (f"{attribute}{number}" for number in count())
    parts = (
        [attribute] if attribute in group.attrs else takewhile(group.attrs.__contains__, numbered)
    )
    for part in parts:
        for name in group.attrs[part]:
            yield name.decode() if isinstance(name, bytes) else str(name)


def _tensors(group: h5py.Group) -> list[np.ndarray]:
    datasets = [_inside(group, name) for name in _names(group, "weight_names")]
    if any(dataset.external or dataset.is_virtual for dataset in datasets):
        raise ValueError("its tensors lie in other files")
    return [dataset[()].astype(np.float32) for dataset in datasets]


def _inside(group: h5py.Group, name: str) -> h5py.Group | h5py.Dataset:
    """What `name` stands for, in this very file: links that lead elsewhere are not followed."""
    for part in name.split("/"):
        if not isinstance(group.get(part, getlink=True), h5py.HardLink):
            raise KeyError(f"no {name} in it")
        group = group[part]
    return group
