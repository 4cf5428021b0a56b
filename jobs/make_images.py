"""Write a small folder of JPEGs to try image training with: python jobs/make_images.py FOLDER

64 images of 8 classes, 160 × 120 to 320 × 240 pixels, in FOLDER/train/CLASS/: each class has a colour and a stripe
direction of its own, each image its own place, brightness and noise. Always the same ones. Needs Pillow.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("amber", "brown", "coral", "green", "indigo", "olive", "teal", "violet")


def main(folder: str) -> None:
    """Write them."""
    rng = np.random.default_rng(7)
    colours = rng.integers(40, 216, (len(CLASSES), 2, 3))
    for label, name in enumerate(CLASSES):
        place = Path(folder, "train", name)
        place.mkdir(parents=True, exist_ok=True)
        for number in range(8):
            height, width = rng.integers(120, 241), rng.integers(160, 321)
            down, across = np.mgrid[:height, :width]
            angle = np.pi * label / len(CLASSES)
            stripes = np.sin((down * np.sin(angle) + across * np.cos(angle)) / rng.uniform(5, 8) + rng.uniform(0, 6))
            pixels = np.where(stripes[..., None] > 0, *colours[label]) * rng.uniform(0.8, 1.1)
            pixels = pixels + rng.normal(0, 12, pixels.shape)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(place / f"{name}-{number}.jpg", quality=90)


if __name__ == "__main__":
    main(sys.argv[1])
