"""The subcommands of ``minbert``."""

# Module, imported only when needed, and help of each subcommand.
COMMANDS = {
    "finetune": ("minbert_cli.finetune", "fine-tune one encoder on one or several tasks"),
    "pretrain": ("minbert_cli.pretrain", "pre-train an encoder on text"),
    "predict": ("minbert_cli.predict", "predict, embed, search and group texts"),
    "embeddings": ("minbert_cli.embeddings", "evaluate sentence embeddings"),
    "export": ("minbert_cli.export", "export a checkpoint: BERT, ONNX, a Space, ..."),
    "experiments": ("minbert_cli.experiments.program", "run many recipes and tabulate them"),
    "new": ("minbert_cli.authoring.new", "write a recipe for your own labeled rows"),
    "check": (
        "minbert_cli.authoring.check",
        "check recipe, data and model without training",
    ),
    "recipes": ("minbert_cli.authoring.recipes", "list, print or copy the packaged recipes"),
}
