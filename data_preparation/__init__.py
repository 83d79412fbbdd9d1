"""From NIfTI scans to checked PNG slices: orientation, HU window, size, labels."""
