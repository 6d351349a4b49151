"""Predict, embed, search and cluster from the shell: `python predict.py CHECKPOINT ...`."""

import sys

from minbert_cli.__main__ import main

if __name__ == "__main__":
    main(["predict", *sys.argv[1:]])
