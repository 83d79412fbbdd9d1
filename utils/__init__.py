"""What every part of the project uses: configuration, runtime, paths, images, logging."""
