"""`python -m mgwfbp` is the command `mgwfbp`."""

from mgwfbp.cli.main import main

main()
