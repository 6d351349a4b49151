"""Fine-tune one MinBert on several tasks: `accelerate launch finetune.py [recipe] [flags]`."""

from minbert_cli.finetune import main

if __name__ == "__main__":
    main()
