"""Run many recipes and seeds and tabulate the results: `python experiments.py [file] [flags]`."""

from minbert_cli.experiments.program import run

if __name__ == "__main__":
    run()
