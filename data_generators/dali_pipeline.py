"""The DALI pipeline: from names, and random changes, to arrays.

`nvidia.dali` is imported inside the function, so that the project runs without it.
"""

from data_generators.slice_reader import SliceReader

PATHS, CHANGES = "paths", "changes"  # names of the pipeline's inputs
CHANGE_NUMBERS = 10  # of a slice in CHANGES: matrix (6), gain, offset, blur, noise


def slice_pipeline(
    reader: SliceReader,
    batch_size: int,
    threads: int,
    device_id: int | None,
    noise_seed: int | None = None,
):
    """The DALI pipeline that turns names into the arrays of `reader`.

    Images are float32 in [0, 1] of shape (B, H, W, C), channels R, G, B, masks are class ids, uint8
    of shape (B, H, W). PNG is decoded by the CPU; with a GPU the rest happens there. Without
    resizing the values are those of `SliceReader`. With it, DALI's antialiased linear filter stands
    for cv2's: enlarged images differ by at most one grey level (1/255); shrunk ones by two where
    the image is smooth, by more in noise, where cv2 averages over a narrower area. Masks take the
    nearest pixel, centres aligned, and differ only where two are equally near.

    Args:
        reader: size, channels, and what masks are divided by.
        batch_size: slices of a batch.
        threads: of the CPU.
        device_id: CUDA's number of the GPU, None for the CPU.
        noise_seed: of the noise in slices that are changed at random, see `change_slice`; None for
            slices as they are. The noise goes on from batch to batch and starts anew with the
            pipeline; everything else is what `SliceChange` says.
    """
    from nvidia.dali import fn, math, pipeline_def, types

    def decode(path, output_type, interpolation):
        content = fn.io.file.read(path)
        array = fn.decoders.image(
            content, device="cpu", output_type=output_type, adjust_orientation=False
        )
        if device_id is not None:
            array = array.gpu()
        if reader.resize:
            size = [reader.height, reader.width]
            array = fn.resize(array, size=size, interp_type=interpolation, antialias=True)
        return array

    def change(image, mask):
        numbers = fn.external_source(name=CHANGES, dtype=types.FLOAT, ndim=1)
        warp = {"matrix": fn.reshape(numbers[:6], shape=[2, 3]), "fill_value": 0}
        gain, offset, blur, noise = (numbers[index] for index in range(6, CHANGE_NUMBERS))
        mask = fn.warp_affine(mask, interp_type=types.INTERP_NN, **warp)
        moved = fn.warp_affine(image, interp_type=types.INTERP_LINEAR, **warp)
        changed = fn.brightness_contrast(
            moved, contrast=gain, contrast_center=0.0, brightness_shift=offset
        )
        changed = fn.gaussian_blur(changed, sigma=blur)
        changed = fn.noise.gaussian(changed, stddev=noise, seed=noise_seed)
        return math.clamp(changed, 0.0, 1.0) * fn.cast(moved > 0.0, dtype=types.FLOAT), mask

    # DALI's default executor takes new memory for every batch, whose first touch costs a CPU more
    # than it saves
    @pipeline_def(
        batch_size=batch_size,
        num_threads=threads,
        device_id=device_id,
        exec_dynamic=False if device_id is None else None,
    )
    def pipeline():
        paths = fn.external_source(name=PATHS, dtype=types.UINT8, ndim=2)
        colours = types.RGB if reader.channels == 3 else types.GRAY
        image = decode(paths[0], colours, types.INTERP_LINEAR)
        image = image / 255.0  # of float32
        mask = decode(paths[1], types.GRAY, types.INTERP_NN)
        if noise_seed is not None:
            image, mask = change(image, mask)
        mask = fn.squeeze(mask, axes=[2])
        if reader.normalize_value is not None:
            mask = fn.cast(mask // reader.normalize_value, dtype=types.UINT8)
        return image, mask

    return pipeline()
