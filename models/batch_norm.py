"""Batch normalisation through TensorFlow's fused kernel, where there is one."""

import keras
from keras import KerasTensor, ops


@keras.saving.register_keras_serializable(package="unet3plus")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` over the last axis of (B, H, W, C), in one kernel.

    Same arguments, variables, serialisation and numbers, moving statistics included: Keras keeps
    the variance of the batch divided by N = B · H · W, the kernel returns it divided by N - 1.
    Statistics are each replica's own, as in Keras without `synchronized`. Computed in float32 also
    on half-precision input. On other backends, and for what the kernel cannot do (masks, another
    rank or axis, renormalisation, synchronised statistics), Keras's own code runs.
    """

    def call(
        self, inputs: KerasTensor, training: bool | None = None, mask: KerasTensor | None = None
    ) -> KerasTensor:
        """The normalised input, of the same shape."""
        if mask is not None or not self._is_fusible(inputs):
            return super().call(inputs, training=training, mask=mask)
        import tensorflow as tf

        use_batch = bool(training and self.trainable)
        moving = [ops.convert_to_tensor(v) for v in (self.moving_mean, self.moving_variance)]
        ones, zeros = ops.ones_like(moving[0]), ops.zeros_like(moving[0])
        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=ones if self.gamma is None else self.gamma,
            offset=zeros if self.beta is None else self.beta,
            mean=zeros[:0] if use_batch else moving[0],
            variance=zeros[:0] if use_batch else moving[1],
            epsilon=self.epsilon,
            is_training=use_batch,
        )
        if use_batch:
            count = ops.cast(ops.size(inputs), "float32") / inputs.shape[-1]
            batch = mean, variance * ((count - 1) / count)
            for variable, old, new in zip(
                (self.moving_mean, self.moving_variance), moving, batch, strict=True
            ):
                variable.assign(old * self.momentum + new * (1.0 - self.momentum))
        return outputs

    def _is_fusible(self, inputs: KerasTensor) -> bool:
        return (
            keras.backend.backend() == "tensorflow"
            and len(inputs.shape) == 4
            and self.axis in (-1, 3)
            and inputs.dtype in ("float32", "float16", "bfloat16")
            and not getattr(self, "renorm", False)  # Keras 3.12 does not have it yet
            and not (self.synchronized and _replicas() > 1)
        )


def _replicas() -> int:
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync
