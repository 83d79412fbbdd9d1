"""How large a weight file gets."""

import math

import keras

_BYTES_PER_NUMBER = 4  # float32; the few counters of 8 bytes find room in what follows
_BYTES_PER_VARIABLE = 8192  # HDF5's own: names, shapes, groups


def weights_size(model: keras.Model) -> int:
    """Bytes, rather too many than too few, of the weights of `model` and of its optimizer's state.

    To claim them before writing is more than a courtesy: HDF5 may crash the process on a full disk.
    """
    optimizer = getattr(model, "optimizer", None)  # only compiled models have one
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    numbers = sum(math.prod(variable.shape) for variable in variables)
    return numbers * _BYTES_PER_NUMBER + (len(variables) + 1) * _BYTES_PER_VARIABLE
