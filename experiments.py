"""Run many recipes and seeds and tabulate the results: `python experiments.py [file] [flags]`."""

from minbert_cli.experiments.program import main

if __name__ == "__main__":
    main()
