"""Export a checkpoint: `python export.py CHECKPOINT --format FORMAT --output_dir FOLDER`."""

from minbert_cli.export import main

if __name__ == "__main__":
    main()
