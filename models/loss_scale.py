"""Dynamic loss scaling of mixed_float16 on several replicas."""

import keras
from keras import KerasTensor, ops


@keras.saving.register_keras_serializable(package="unet3plus")
class ReplicaLossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer`, with all replicas asked whether to skip a step.

    Keras asks the first replica only, before gradients are added up: an overflow on another one,
    which is normal while the scale is being found, would make all weights infinite.
    """

    def check_finite(self, grads: list[KerasTensor | None]) -> KerasTensor:
        """Whether the gradients of every replica are finite, a scalar."""
        import tensorflow as tf

        finite = ops.cast(super().check_finite(grads), "float32")
        context = tf.distribute.get_replica_context()
        return ops.equal(context.all_reduce(tf.distribute.ReduceOp.MEAN, finite), 1)
