"""What TensorFlow reports when memory or disk is used up, said in the user's words."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from utils.errors import UserError

_DISK_FULL = "No space left on device"


def explain_exhaustion(task: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a task so that it raises a UserError where the memory or the disk runs out."""

    @wraps(task)
    def explained(*arguments: Any, **options: Any) -> Any:
        try:
            return task(*arguments, **options)
        except tf.errors.ResourceExhaustedError as error:
            raise UserError(_explanation(error.message)) from None

    return explained


def _explanation(message: str) -> str:
    reason = message.strip().partition("\n")[0]
    if _DISK_FULL in message:
        return f"The disk is full ({reason})"
    return (
        "The memory of the device does not suffice: lower HYPER_PARAMETERS.BATCH_SIZE or "
        "INPUT.HEIGHT and INPUT.WIDTH, take smaller MODEL.FILTERS, or set OPTIMIZATION.AMP=True "
        f"on a GPU ({reason})"
    )
