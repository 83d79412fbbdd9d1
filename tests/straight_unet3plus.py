"""UNet 3+ once more, written straight down from figures 1c to 3 of the paper with plain layers.

No loop over levels and nothing from `models`: the yardstick for the decoder's wiring. Layers carry
the names of the real model, so that weights can be copied by name.
"""

import keras
from keras import ops

L = keras.layers


def unit(x, filters, name):
    x = L.Conv2D(filters, 3, padding="same", name=name)(x)
    x = L.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name.replace("conv", "bn"))(x)
    return ops.relu(x)


def plain(x, filters, name):
    return L.Conv2D(filters, 3, padding="same", activation="relu", name=name)(x)


def down(x, factor):
    return L.MaxPooling2D(factor)(x)


def up(x, factor):
    return L.UpSampling2D(factor, interpolation="bilinear")(x)


def own_encoder(x, f1, f2, f3, f4, f5):
    e1 = unit(unit(x, f1, "enc1_conv1"), f1, "enc1_conv2")
    e2 = unit(unit(down(e1, 2), f2, "enc2_conv1"), f2, "enc2_conv2")
    e3 = unit(unit(down(e2, 2), f3, "enc3_conv1"), f3, "enc3_conv2")
    e4 = unit(unit(down(e3, 2), f4, "enc4_conv1"), f4, "enc4_conv2")
    e5 = unit(unit(down(e4, 2), f5, "enc5_conv1"), f5, "enc5_conv2")
    return e1, e2, e3, e4, e5


def vgg16_encoder(x, f1, f2, f3, f4, _):
    e1 = plain(plain(x, f1, "block1_conv1"), f1, "block1_conv2")
    e2 = plain(plain(down(e1, 2), f2, "block2_conv1"), f2, "block2_conv2")
    e3 = plain(plain(down(e2, 2), f3, "block3_conv1"), f3, "block3_conv2")
    e3 = plain(e3, f3, "block3_conv3")
    e4 = plain(plain(down(e3, 2), f4, "block4_conv1"), f4, "block4_conv2")
    e4 = plain(e4, f4, "block4_conv3")
    e5 = plain(plain(down(e4, 2), f4, "block5_conv1"), f4, "block5_conv2")
    e5 = plain(e5, f4, "block5_conv3")
    return e1, e2, e3, e4, e5


def vgg19_encoder(x, f1, f2, f3, f4, _):
    e1 = plain(plain(x, f1, "block1_conv1"), f1, "block1_conv2")
    e2 = plain(plain(down(e1, 2), f2, "block2_conv1"), f2, "block2_conv2")
    e3 = plain(plain(down(e2, 2), f3, "block3_conv1"), f3, "block3_conv2")
    e3 = plain(plain(e3, f3, "block3_conv3"), f3, "block3_conv4")
    e4 = plain(plain(down(e3, 2), f4, "block4_conv1"), f4, "block4_conv2")
    e4 = plain(plain(e4, f4, "block4_conv3"), f4, "block4_conv4")
    e5 = plain(plain(down(e4, 2), f4, "block5_conv1"), f4, "block5_conv2")
    e5 = plain(plain(e5, f4, "block5_conv3"), f4, "block5_conv4")
    return e1, e2, e3, e4, e5


def straight_unet3plus(variant, backbone, input_shape, classes, filters):
    image = keras.Input(input_shape)
    encoders = {"unet3plus": own_encoder, "vgg16": vgg16_encoder, "vgg19": vgg19_encoder}
    e1, e2, e3, e4, e5 = encoders[backbone](image, *filters)
    w = filters[0]

    d4 = [
        unit(down(e1, 8), w, "dec4_from1_conv"),
        unit(down(e2, 4), w, "dec4_from2_conv"),
        unit(down(e3, 2), w, "dec4_from3_conv"),
        unit(e4, w, "dec4_from4_conv"),
        unit(up(e5, 2), w, "dec4_from5_conv"),
    ]
    d4 = unit(ops.concatenate(d4, axis=-1), 5 * w, "dec4_conv")
    d3 = [
        unit(down(e1, 4), w, "dec3_from1_conv"),
        unit(down(e2, 2), w, "dec3_from2_conv"),
        unit(e3, w, "dec3_from3_conv"),
        unit(up(d4, 2), w, "dec3_from4_conv"),
        unit(up(e5, 4), w, "dec3_from5_conv"),
    ]
    d3 = unit(ops.concatenate(d3, axis=-1), 5 * w, "dec3_conv")
    d2 = [
        unit(down(e1, 2), w, "dec2_from1_conv"),
        unit(e2, w, "dec2_from2_conv"),
        unit(up(d3, 2), w, "dec2_from3_conv"),
        unit(up(d4, 4), w, "dec2_from4_conv"),
        unit(up(e5, 8), w, "dec2_from5_conv"),
    ]
    d2 = unit(ops.concatenate(d2, axis=-1), 5 * w, "dec2_conv")
    d1 = [
        unit(e1, w, "dec1_from1_conv"),
        unit(up(d2, 2), w, "dec1_from2_conv"),
        unit(up(d3, 4), w, "dec1_from3_conv"),
        unit(up(d4, 8), w, "dec1_from4_conv"),
        unit(up(e5, 16), w, "dec1_from5_conv"),
    ]
    d1 = unit(ops.concatenate(d1, axis=-1), 5 * w, "dec1_conv")

    def head(x, factor, name):
        x = L.Conv2D(classes, 3, padding="same", name=name)(x)
        x = up(x, factor) if factor > 1 else x
        return ops.softmax(x, axis=-1) if classes > 1 else ops.sigmoid(x)

    outputs = {"d1": head(d1, 1, "head1_conv")}
    if variant != "unet3plus":
        outputs["d2"] = head(d2, 2, "head2_conv")
        outputs["d3"] = head(d3, 4, "head3_conv")
        outputs["d4"] = head(d4, 8, "head4_conv")
        outputs["e5"] = head(e5, 16, "head5_conv")
    if variant == "unet3plus_deepsup_cgm":
        logits = ops.max(L.Conv2D(2, 1, name="cgm_conv")(e5), axis=(1, 2))
        presence = ops.sigmoid(logits)
        gate = ops.cast(presence[:, 1] > presence[:, 0], "float32")[:, None, None, None]
        for name, probabilities in outputs.items():
            if classes == 1:
                outputs[name] = probabilities * gate
            else:
                foreground = probabilities[..., 1:] * gate
                background = 1 - ops.sum(foreground, axis=-1, keepdims=True)
                outputs[name] = ops.concatenate([background, foreground], axis=-1)
        outputs["presence"] = presence
    return keras.Model(image, outputs)
