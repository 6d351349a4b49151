"""Run many recipes and seeds and tabulate the results: `python experiments.py [file] [flags]`."""

import sys

from minbert_cli.__main__ import main

if __name__ == "__main__":
    main(["experiments", *sys.argv[1:]])
