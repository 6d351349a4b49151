"""Fine-tune one MinBert on several tasks: `accelerate launch finetune.py [recipe] [flags]`."""

import sys

from minbert_cli.__main__ import main

if __name__ == "__main__":
    main(["finetune", *sys.argv[1:]])
