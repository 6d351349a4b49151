"""Pre-train a MinBert on text: `accelerate launch pretrain.py [recipe] [flags]`."""

from minbert_cli.pretrain import main

if __name__ == "__main__":
    main()
