"""Export a checkpoint: `python export.py CHECKPOINT --format FORMAT --output_dir FOLDER`."""

import sys

from minbert_cli.__main__ import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
