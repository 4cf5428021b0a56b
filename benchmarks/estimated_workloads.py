"""Write the estimated workloads that the project ships, from the models and the device models.

    python benchmarks/estimated_workloads.py [FOLDER]     by default src/mgwfbp/simulate/figures

A test compares the shipped files with a fresh estimate; run this after a change of the estimator or of a net.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mgwfbp.bench.roofline import estimate, load_device
from mgwfbp.files import write_text
from mgwfbp.models import build
from mgwfbp.schedule import workload_to_dict

# device, model, batch size of a rank
SHIPPED = [
    ("k80", "resnet50", 32),
    ("v100", "resnet152", 128),
    ("v100", "inceptionv4", 128),
    ("v100", "densenet161", 64),
    ("v100", "densenet201", 64),
]


def shipped_workload(device: str, model: str, batch_size: int) -> dict:
    """The object of the shipped file; times are rounded to 1 ns, so that the file does not depend on the machine."""
    value = workload_to_dict(estimate(build(model), batch_size, load_device(device)))
    value["name"] = f"{device}-{model}"
    value["forward_s"] = round(value["forward_s"], 9)
    for layer in value["layers"]:
        layer["backward_s"] = round(layer["backward_s"], 9)
    return value


def main() -> None:
    default = Path(__file__).resolve().parents[1] / "src/mgwfbp/simulate/figures"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    for device, model, batch_size in SHIPPED:
        value = shipped_workload(device, model, batch_size)
        layers = ",\n  ".join(json.dumps(layer) for layer in value.pop("layers"))
        head = json.dumps(value, indent=1, ensure_ascii=False)[:-2]
        write_text(folder / f"{value['name']}.workload.json", f'{head},\n "layers": [\n  {layers}\n ]\n}}\n')
        print(f"{value['name']}: {value['source']}")


if __name__ == "__main__":
    main()
