"""Weights of NVIDIA's UNet3P folder: `python -m models.legacy_weights checkpoint/old.hdf5`.

Writes `old.weights.h5` and its card beside the old file (a second argument names another place), as
every command here takes them; the outputs of the network stay the same. The one exception is the
classification-guided module, which there emptied a slice to 0.5 and here empties it to 0.

Layers have automatic names in the old files, numbered as they were made: conv2d, conv2d_1, … The
numbers need not start at 0, and the order of the file is another one (Keras sorts by depth in the
graph), so that only the sequence of the numbers says which layer is which.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.backbones import ENCODERS, LEVELS, encoder_kernels
from models.from_weights import build_from_identity
from models.h5_layers import Layers, check_shapes, read_h5_layers, set_layers
from models.weights import IDENTITY_KEYS, read_card, save_weights
from utils.errors import EXIT_USER_ERROR, UserError
from utils.paths import LEGACY_SUFFIXES, WEIGHTS_SUFFIX

EPSILON = 1e-3  # of batch normalisation there, Keras's default
INPUT_SIZE = [320, 320]  # px; the old files do not say
# The slices of that folder come nearest to these
PREPARATION = {"height": 320, "width": 320, "hu_min": -200.0, "hu_max": 250.0, "fit": "resize"}
SAID = ("variant", "backbone", "classes", "channels", "batch_norm_epsilon")  # entries to print
# Variant -> segmentation heads, and convolutions of the classification-guided module
VARIANTS = {
    "unet3plus": (1, 0),
    "unet3plus_deepsup": (5, 0),
    "unet3plus_deepsup_cgm": (5, 1),
}
_AUTOMATIC = r"{}(?:_(\d+))?"


def read_legacy_weights(path: Path, key: str = "weights") -> tuple[dict[str, Any], Layers]:
    """Identity (`models.weights.IDENTITY_KEYS`) and layers, under the names they have here.

    Raises:
        UserError: `key` and `path`, and what does not fit: the number of layers, or the shape of a
            tensor that its role asks for.
    """
    stored = read_h5_layers(path, key)
    convolutions, norms = _numbered(stored, "conv2d"), _numbered(stored, "batch_normalization")
    named = {n: t for n, t in stored.items() if n not in {*convolutions, *norms}}
    backbone = _backbone(named)
    variant = _variant(backbone, len(convolutions), len(norms))
    if variant is None:
        raise UserError(
            f"{key}: {path} is not of NVIDIA's UNet3P folder: {len(convolutions)} convolutions and "
            f"{len(norms)} batch normalisations with automatic names, {len(named)} other layers"
        )
    convolution_names, norm_names = _roles(backbone, variant)
    layers = named | dict(
        zip(convolution_names, map(stored.__getitem__, convolutions), strict=True)
    )
    layers |= dict(zip(norm_names, map(stored.__getitem__, norms), strict=True))
    identity = _identity(backbone, variant, layers)
    check_shapes(layers, dict(_shapes(identity)), f"{key}: {path} is not a {variant} on {backbone}")
    return identity, layers


def convert(source: Path, target: Path | None = None) -> Path:
    """Write the old weights `source` in today's form, with card; returns the path.

    Raises:
        UserError: `source` is no such file, or there is a file at `target` already.
    """
    if source.name.endswith(WEIGHTS_SUFFIX) or source.suffix not in LEGACY_SUFFIXES:
        expected = " or ".join(LEGACY_SUFFIXES)
        raise UserError(f"{source}: expected a file of NVIDIA's UNet3P folder, {expected}")
    target = target or source.with_name(source.stem + WEIGHTS_SUFFIX)
    if not target.name.endswith(WEIGHTS_SUFFIX):
        raise UserError(f"{target}: expected a name that ends in {WEIGHTS_SUFFIX}")
    if target.exists():
        raise UserError(f"{target} is there already; name another file as the second argument")
    identity, layers = read_legacy_weights(source)
    model = build_from_identity(identity)
    set_layers(model, layers)
    facts = {"input_size": INPUT_SIZE, "preparation": PREPARATION, "converted_from": source.name}
    save_weights(model, target, identity, **facts)
    return target


def _numbered(stored: Layers, kind: str) -> list[str]:
    """The layers with automatic names of one kind, in the order in which they were made."""
    matches = [re.fullmatch(_AUTOMATIC.format(kind), name) for name in stored]
    return [m[0] for m in sorted(filter(None, matches), key=lambda match: int(match[1] or 0))]


def _backbone(named: Layers) -> str:
    """The encoder with these layers; the paper's own has automatic names only."""
    kinds = [kind for kind in ENCODERS if set(_encoder_names(kind)) == set(named)]
    return kinds[0] if kinds else "unet3plus"


def _encoder_names(backbone: str) -> list[str]:
    return [name for name, _ in encoder_kernels(backbone, [0] * LEVELS, 0)]


def _variant(backbone: str, convolutions: int, norms: int) -> str | None:
    counts = {variant: tuple(map(len, _roles(backbone, variant))) for variant in VARIANTS}
    return next((v for v, count in counts.items() if count == (convolutions, norms)), None)


def _roles(backbone: str, variant: str) -> tuple[list[str], list[str]]:
    """Convolutions and batch normalisations with automatic names, in the order of making."""
    heads, modules = VARIANTS[variant]
    encoder = _encoder_names(backbone) if ENCODERS[backbone].batch_norm else []
    decoder = []
    for level in range(LEVELS - 1, 0, -1):
        decoder += [f"dec{level}_from{source}_conv" for source in range(1, LEVELS + 1)]
        decoder.append(f"dec{level}_conv")
    head_names = [f"head{level}_conv" for level in range(1, heads + 1)]
    norms = [name.replace("conv", "bn") for name in encoder + decoder]
    return encoder + ["cgm_conv"] * modules + decoder + head_names, norms


def _identity(backbone: str, variant: str, layers: Layers) -> dict[str, Any]:
    encoder = ENCODERS[backbone]
    first = [f"{encoder.prefix.format(level=level)}_conv1" for level in range(1, LEVELS + 1)]
    filters = [layers[name][0].shape[-1] for name in first]
    if not encoder.batch_norm:
        filters[-1] *= 2  # the fifth is not used there; this is its default
    return {
        "variant": variant,
        "backbone": backbone,
        "filters": filters,
        "classes": layers["head1_conv"][0].shape[-1],
        "channels": layers[first[0]][0].shape[-2],
        "batch_norm_epsilon": EPSILON,
        "input_scaling": "none",
    }


def _shapes(identity: dict[str, Any]) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Every layer with the shapes of its tensors, as the network's wiring has them."""
    backbone, filters = identity["backbone"], identity["filters"]
    encoder = ENCODERS[backbone]
    kernels = dict(encoder_kernels(backbone, filters, identity["channels"]))
    width = {level: filters[encoder.width_levels[level - 1] - 1] for level in range(1, LEVELS + 1)}
    branch, fused = filters[0], LEVELS * filters[0]
    for level in range(1, LEVELS):
        for source in range(1, LEVELS + 1):
            channels = fused if level < source < LEVELS else width[source]
            kernels[f"dec{level}_from{source}_conv"] = (3, 3, channels, branch)
        kernels[f"dec{level}_conv"] = (3, 3, fused, fused)
    heads, modules = VARIANTS[identity["variant"]]
    for level in range(1, heads + 1):
        channels = fused if level < LEVELS else width[LEVELS]
        kernels[f"head{level}_conv"] = (3, 3, channels, identity["classes"])
    if modules:
        kernels["cgm_conv"] = (1, 1, width[LEVELS], 2)
    norms = _roles(backbone, identity["variant"])[1]
    for name, shape in kernels.items():
        yield name, [shape, shape[-1:]]
        if (norm := name.replace("conv", "bn")) in norms:
            yield norm, [shape[-1:]] * 4


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.legacy_weights")
    parser.add_argument("old", type=Path, help="a weight file of NVIDIA's UNet3P folder")
    parser.add_argument(
        "new", type=Path, nargs="?", help=f"beside it, *{WEIGHTS_SUFFIX}, if not given"
    )
    arguments = parser.parse_args()
    try:
        converted = convert(arguments.old, arguments.new)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    card = read_card(converted)
    overrides = [f"{key}={card[entry]}" for entry, key in IDENTITY_KEYS.items() if entry in SAID]
    print(f"Converted: {converted}\nIts network: {' '.join(overrides)}")


if __name__ == "__main__":
    _main()
