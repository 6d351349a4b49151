"""The time of one text at a time: python -m benchmarks.one_text WHAT MODEL --texts FILE.

One process measures one thing; a loop over processes interleaves several. MODEL is a folder: of
minBERT, of an ONNX export, of sentence-transformers, or of a stock classifier for `pipelines`.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WARMUP = 60


def find_call(what: str, model: str, precision: str | None) -> Callable[[str], Any]:
    """Return what is measured, for a text."""
    if what == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        options: dict[str, Any] = {}
        if precision is not None:  # the name of an ONNX file
            options = {"backend": "onnx", "model_kwargs": {"file_name": precision}}
        return SentenceTransformer(model, **options).encode
    if what == "pipelines":
        from transformers import pipeline

        made: Any = pipeline
        pipelines = [made("text-classification", model=model, device="cpu") for _ in range(3)]
        return lambda text: [each(text) for each in pipelines]
    import minbert

    ours: Any = minbert.load(model)
    if precision is not None:
        ours.set_precision(precision, fixed_weights=True)
    if what == "encode":
        return ours.encode
    return lambda text: ours.predict_all([text], what.split(","))


def main() -> None:
    """Measure calls, and print their median and their 99th percentile in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", help="encode, sentence-transformers, pipelines, or tasks: a,b,c")
    parser.add_argument("model")
    parser.add_argument("--precision", help="of minBERT, or the ONNX file of sentence-transformers")
    parser.add_argument("--texts", type=Path, required=True, help="file with a text on each line")
    parser.add_argument("--count", type=int, default=400)
    args = parser.parse_args()
    texts = args.texts.read_text("utf-8").splitlines()[: WARMUP + args.count]
    call, times = find_call(args.what, args.model, args.precision), []
    for text in texts:
        start = time.perf_counter()
        call(text)
        times.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(times[WARMUP:], (50, 99))
    print(json.dumps({"what": args.what, "model": args.model, "p50": p50, "p99": p99}))


if __name__ == "__main__":
    main()
