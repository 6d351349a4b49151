"""Pre-train a MinBert on text: `accelerate launch pretrain.py [recipe] [flags]`."""

import sys

from minbert_cli.__main__ import main

if __name__ == "__main__":
    main(["pretrain", *sys.argv[1:]])
