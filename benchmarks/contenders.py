"""What is measured: workloads, and the contenders of each. Imports nothing but standard modules."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Contender:
    """A way to do the work.

    Args:
        target: ``module:function`` in this package.
        needs: Packages without which it is left out.
        prepare: ``module:function`` that writes the files it loads.
        is_elsewhere: Whether it runs in the environment of ``--peer_python``, whose packages are
            not checked here.
    """

    target: str
    needs: tuple[str, ...] = ()
    prepare: str | None = None
    is_elsewhere: bool = False

    def reason_to_skip(self, peer_python: str | None) -> str | None:
        """Say why it cannot run here, or None."""
        if self.is_elsewhere:
            return None if peer_python else "needs --peer_python"
        missing = [name for name in self.needs if find_spec(name) is None]
        return f"{', '.join(missing)} is not installed" if missing else None


@dataclass(frozen=True)
class Workload:
    """What contenders do.

    Args:
        item: What is counted, such as tokens.
        contenders: They by name.
        runner: ``module:function`` that gets the target of the contender; None if the target runs
            itself.
        units: Units of a block; None for as many as take the wanted seconds.
        warmup: Units before them.
        check: Whose record of a check counts for it: its own name, that of an equal workload, or
            None if there is nothing to compare.
    """

    item: str
    contenders: Mapping[str, Contender]
    runner: str | None = None
    units: int | None = None
    warmup: int = 0
    check: str | None = None


ST = ("sentence_transformers",)
TRAINERS = {
    "minbert": Contender("training:MinBertPeer"),
    "minbert padded": Contender("training:MinBertPeer"),
    "minbert dense": Contender("training:MinBertPeer"),
    "minbert compiled": Contender("training:MinBertPeer"),
    "trainer": Contender("training:TrainerPeer"),
    "bare": Contender("training:BarePeer"),
}
PAIR_TRAINERS = {**TRAINERS, "sentence-transformers": Contender("training:SentencePeer", ST)}
ONNX = ("onnx", "onnxscript", "onnxruntime")
INT8 = "inference:save_int8"
ENCODERS = {
    "sentence-transformers": Contender("inference:load_sentence_transformer", ST),
    "transformers": Contender("inference:load_bert"),
    "minbert": Contender("inference:load_minbert", prepare=INT8),
    "minbert words": Contender("inference:load_minbert", prepare=INT8),
    "minbert compiled": Contender("inference:load_minbert"),
    "minbert onnx": Contender("inference:load_minbert_onnx", ONNX, "inference:export_minbert_onnx"),
    "onnx": Contender(
        "inference:load_onnx", prepare="inference:export_onnx", is_elsewhere=True
    ),
    "openvino": Contender(
        "inference:load_openvino", prepare="inference:export_openvino", is_elsewhere=True
    ),
}  # fmt: skip
CLASSIFIERS = {
    "transformers": Contender("inference:load_pipeline", prepare="inference:save_classifiers"),
    "minbert": Contender("inference:load_classifier", prepare="inference:save_classifiers"),
}
THREE_TASKS = {
    "predict": Contender("inference:load_apart"),
    "predict_all": Contender("inference:load_together"),
}
PIPELINES = Contender("inference:load_pipelines", prepare="inference:save_classifiers")
METHOD_NAMES = (
    "plain", "R-Drop", "autocast", "half the layers frozen", "LoRA", "tasks drawn",
    "pairs separate", "multiple negatives ranking", "CoSENT", "SimCSE",
)  # fmt: skip
STARTS = ("transformers", "minbert", "minbert predict", "minbert help")


def _train(check: str, contenders: Mapping[str, Contender] = TRAINERS) -> Workload:
    return Workload("tokens", contenders, "training:run", warmup=2, check=check)


WORKLOADS: dict[str, Workload] = {
    "sst": _train("sst"),
    "sst_grouped": _train("sst"),
    "quora": _train("quora", PAIR_TRAINERS),
    "sts": _train("sts", PAIR_TRAINERS),
    "mixed": _train("mixed"),
    "mlm128": _train("mlm128"),
    "mlm128_full": _train("mlm128"),
    "mlm512": _train("mlm512"),
    "sst_large": _train("sst"),
    "mlm128_large": _train("mlm128"),
    "mlm512_large": _train("mlm512"),
    "mlm128_grouped": _train("mlm128"),
    "encode": Workload("sentences", ENCODERS, "inference:run", 1, 1, "encode"),
    "encode_one": Workload("sentences", ENCODERS, "inference:run", 300, 20, "encode"),
    "predict": Workload("sentences", CLASSIFIERS, "inference:run", 1, 1, "predict"),
    "predict_one": Workload("sentences", CLASSIFIERS, "inference:run", 300, 20, "predict"),
    "three_tasks": Workload("sentences", THREE_TASKS, "inference:run", 1, 1, "three_tasks"),
    "three_tasks_one": Workload(
        "sentences", {**THREE_TASKS, "pipelines": PIPELINES}, "inference:run", 300, 20
    ),
    "most_similar": Workload(
        "pairs",
        {
            "joint": Contender("inference:compare_jointly"),
            "vectors": Contender("inference:compare_vectors"),
        },
        units=1, warmup=1,
    ),
    "methods": Workload(
        "rows", {name: Contender("methods:train") for name in METHOD_NAMES}, warmup=6
    ),
    "corpus_build": Workload(
        "kilobytes",
        {
            "datasets": Contender("programs:build_with_datasets"),
            "minbert": Contender("programs:build_with_minbert"),
        },
        units=1,
    ),
    "corpus_read": Workload(
        "rows",
        {
            "DataCollatorForLanguageModeling": Contender("programs:read_with_transformers"),
            "minbert": Contender("programs:read_with_minbert"),
        },
        units=1, warmup=1,
    ),
    "startup": Workload(
        "starts", {name: Contender("programs:start") for name in STARTS}, units=3, warmup=1
    ),
    "parts": Workload(
        "tokens",
        {"trainer": TRAINERS["trainer"], "minbert": TRAINERS["minbert"]},
        "training:profile", units=15, warmup=5,
    ),
}  # fmt: skip
