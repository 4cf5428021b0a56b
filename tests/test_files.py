"""Where a file that is written comes to lie: whole, or where the name says that something is open already."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mgwfbp.errors import UserError
from mgwfbp.files import check_writable, write_text

WRITE = """
import sys
from mgwfbp.files import check_writable, write_text
print("before")
check_writable(sys.argv[1])
write_text(sys.argv[1], "text\\n")
print("after")
"""
ALL = "before\ntext\nafter\n"


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_is_written_behind_what_was_printed(tmp_path, name, into):
    command = [sys.executable, "-c", WRITE, name]
    if into == "pipe":
        text = subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True).stdout
    else:
        with open(tmp_path / "all", "w") as file:
            subprocess.run(command, cwd=tmp_path, check=True, stdout=file)
        text = (tmp_path / "all").read_text()
    assert text == ALL
    assert not (tmp_path / "-").exists()


def test_a_user_without_rights_in_proc_may_write_to_it(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    write = f"import os; os.setuid(65534)\n{WRITE}".replace("import sys\n", "import sys\n", 1)
    code = f"import mgwfbp.files\n{write}"  # imported while the package can be read
    done = subprocess.run([sys.executable, "-c", code, "/dev/stdout"], capture_output=True, text=True, check=False)
    assert done.stdout == ALL, done.stderr


def test_a_pipe_with_a_name_is_written_into(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    check_writable(tmp_path / "pipe")
    write_text(tmp_path / "pipe", "text\n")
    assert reader.communicate(timeout=20)[0] == "text\n"


def test_a_link_is_followed_and_a_folder_refused(tmp_path):
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "text\n")
    assert (tmp_path / "file").read_text() == "text\n"
    assert (tmp_path / "link").is_symlink()
    for refuse in (check_writable, lambda path: write_text(path, "")):
        with pytest.raises(UserError, match="cannot be written"):
            refuse(tmp_path)
