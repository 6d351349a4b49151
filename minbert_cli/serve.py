"""``minbert serve``: its flags."""

import json
import os
import sys
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from minbert_cli.command_line import Device, Precision, to_location

PROGRAM = "minbert serve"


def serve(
    checkpoint: Annotated[
        str, typer.Argument(parser=to_location, help="folder or Hub id, or a folder of ONNX")
    ],
    host: Annotated[str, typer.Option(help="address; 0.0.0.0 for other machines")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="processes, each with its model")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="of a worker; by default its share of the cores")
    ] = None,
    device: Device = None,
    precision: Precision = "auto",
    max_tokens: Annotated[
        int | None,
        typer.Option("--max_tokens", min=1, help="of a batch; by default what suits the device"),
    ] = None,
    max_wait_ms: Annotated[
        float,
        typer.Option(
            "--max_wait_ms", min=0, help="how long an idle model waits for clients to return"
        ),
    ] = 2.0,
    max_rows: Annotated[
        int, typer.Option("--max_rows", min=1, help="rows that may wait; more are answered 429")
    ] = 4096,
    max_rows_per_request: Annotated[
        int, typer.Option("--max_rows_per_request", min=1, help="rows of a request")
    ] = 2048,
    max_bytes: Annotated[
        int, typer.Option("--max_bytes", min=1, help="of the body of a request")
    ] = 8_000_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds that a request may take")] = 60.0,
) -> None:
    """Serve all tasks of a checkpoint, and its vectors, over HTTP.

    \b
    minbert serve runs/reviews
    curl localhost:8000/predict_all -d '{"rows": ["What a lovely film."]}'
    curl localhost:8000/v1/embeddings -d '{"input": "What a lovely film."}'

    Rows of all clients and tasks that wait are computed in one batch. Clients of OpenAI (base_url
    http://localhost:8000/v1), Cohere, Jina, Hugging Face and text-embeddings-inference work; GET
    /openapi.json describes all routes. With a key in MINBERT_API_KEY, all but /health ask for it.
    SIGTERM finishes what was accepted.
    """  # noqa: D301  \b keeps the lines of a paragraph
    settings = SimpleNamespace(**locals())
    try:
        import uvicorn

        from minbert_cli import serving
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{error.name} is missing: pip install minbert[serve]") from None
    from trainers import readable_errors

    settings.threads = threads or (
        max(1, (os.cpu_count() or 1) // workers) if workers > 1 else None
    )
    os.environ[serving.SETTINGS] = json.dumps(vars(settings))
    with readable_errors(PROGRAM):
        app: Any = "minbert_cli.serving:make_app"
        if workers == 1:
            app = serving.make_app()
        else:
            serving.load(settings)  # so that its errors end this process
    print(f"{checkpoint}: http://{host}:{port}/openapi.json", file=sys.stderr)
    uvicorn.run(
        app,
        host=host,
        port=port,
        workers=workers,
        factory=isinstance(app, str),
        access_log=False,
        log_level="warning",
        timeout_keep_alive=75,
    )
