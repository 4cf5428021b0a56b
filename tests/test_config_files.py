"""--config FILE.toml, and the configs that come with the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_cli import MGWFBP, MPIRUN, SMALL, mistake, needs_mpirun, run

JOBS = Path(__file__).parent.parent / "jobs"
CONFIGS = sorted(JOBS.glob("*.toml"))


def test_a_file_sets_options_and_the_command_line_and_environment_come_first(tmp_path):
    text = 'model = "mlp"\nlr = 0.25\nbatch-size = 8\nseed = 5\nnesterov = true\nflip = 1\n'
    (tmp_path / "c.toml").write_text(text)
    command = [MGWFBP, "train", "--config", "c.toml", *SMALL, "--batch-size", "4", "--out", "r"]
    done = run(*command, cwd=tmp_path, MGWFBP_SEED="6")
    assert done.returncode == 0, done.stderr
    used = json.loads((tmp_path / "r" / "config.json").read_text())
    assert [used[key] for key in ("model", "lr", "batch_size", "seed")] == ["mlp", 0.005, 4, 6]
    assert used["nesterov"] is used["flip"] is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epoch = 3", "option in config file c.toml: 'epoch': did you mean 'epochs'?"),
        ("model = 'mlp'\nepochs = 3.5", "'3.5' is not a valid integer"),
        ("model = 'mlp'\nnesterov = 'perhaps'", "not a valid boolean"),
        ("epochs = [1]", "config file c.toml: epochs must be one value"),
        ("epochs = ", "config file c.toml: not TOML (Invalid value (at end of document))"),
        ("config = 'd.toml'", "unknown option in config file c.toml: 'config'"),
        ("", "name a model (mgwfbp train lenet)"),
        (None, "config file c.toml: cannot be read (No such file or directory)"),
        (b"\xff\xfe", "config file c.toml: not a text file"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(tmp_path, text, says):
    if text is not None:
        (tmp_path / "c.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    mistake(run(MGWFBP, "train", "--config", "c.toml", cwd=tmp_path), says)


@needs_mpirun
def test_a_config_of_ours_starts(tmp_path):
    shorter = ["--iterations", "1", "--global-batch-size", "2", "--profile-iterations", "2", "--out", "r"]
    config = JOBS / "resnet20-mnist5k.toml"
    done = run(MPIRUN, "-n", 2, MGWFBP, "train", "--config", config, *shorter, cwd=tmp_path, seconds=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["iterations"] == 1


@pytest.mark.parametrize("config", [path for path in CONFIGS if "jpegs" in path.stem], ids=lambda path: path.stem)
def test_the_others_of_ours_have_only_options_that_there_are(tmp_path, config):
    """Their images are made by hand: that they are not there is all that is complained of."""
    done = run(MGWFBP, "train", "--config", config, "--data-dir", "nowhere", cwd=tmp_path)
    mistake(done, "nowhere")


def test_a_bad_image_ends_or_is_left_out_as_the_run_was_told(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow, which decodes images, is not installed")
    for name in "ab":
        (tmp_path / "f" / "train" / name).mkdir(parents=True)
        for number in range(3):
            image.new("RGB", (40, 40), (80 * number, 0, 0)).save(tmp_path / "f" / "train" / name / f"{number}.jpg")
    (tmp_path / "f" / "train" / "b" / "1.jpg").write_bytes(b"not a picture")
    command = [MGWFBP, "train", "mlp", "--data", "images:28", "--data-dir", "f", "--epochs", "2", "--batch-size", "3"]
    mistake(run(*command, "--out", "stop", cwd=tmp_path), "f/train/b/1.jpg: cannot be decoded")
    done = run(*command, "--out", "skip", "--on-bad-image", "skip", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("b/1.jpg") == 1
    mistake(run(*command, "--shift", "1", cwd=tmp_path), "cropped at random anyway")
    mistake(run(*command, "--on-bad-image", "skp", cwd=tmp_path), "did you mean 'skip'?")
