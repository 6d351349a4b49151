"""Predict, embed, search and cluster from the shell: `python predict.py CHECKPOINT ...`."""

from minbert_cli.predict import main

if __name__ == "__main__":
    main()
