"""``minbert serve``: its flags."""

import atexit
import os
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from minbert_cli.command_line import Device, Precision, quick_imports, to_location


def serve(
    checkpoint: Annotated[
        str, typer.Argument(parser=to_location, help="folder or Hub id, or a folder of ONNX")
    ],
    host: Annotated[str, typer.Option(help="address; 0.0.0.0 for other machines")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="processes, which share the memory of the weights; by default one a core, 1 with "
            "cuda; fewer are faster for single long texts",
        ),
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
        import joblib
        import uvicorn

        has_cuda = uses_cuda(checkpoint, device)
        if has_cuda and (workers or 1) > 1:
            raise typer.BadParameter(
                f"--workers {workers}: CUDA does not survive a fork; use one, or --device cpu"
            )
        cores = joblib.cpu_count()  # that this process may use, also in a container
        count = workers or (1 if has_cuda or not hasattr(os, "fork") else cores)
        settings.threads = max(1, cores // count)
        if count > 1:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
            # counters of all workers; read when the library is imported
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder = tempfile.mkdtemp("-minbert-serve")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with quick_imports():
            from minbert_cli import serving
            from trainers import readable_errors
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{error.name} is missing: pip install minbert[serve]") from None

    with readable_errors("minbert serve"):
        # fails if the port is taken, also by workers of another server
        listener = socket.create_server((host, port), backlog=2048)
        place = listener.getsockname()[:2]
        if count > 1:
            listener.close()
        model, facts = serving.load(settings)

    def run() -> None:
        """Answer requests until a signal comes."""
        # threads that answer and tokenize hold up the one that computes: by default 5 ms each time
        sys.setswitchinterval(0.0005)
        app = serving.build_app(serving.Server(model, facts, settings))
        options: Any = {"access_log": False, "log_level": "warning", "timeout_keep_alive": 75}
        sockets = [listener]
        if count > 1:  # of each worker: of a shared one, a single worker may take all clients
            sockets = [socket.create_server(place, backlog=2048, reuse_port=True)]
        server: Any = uvicorn.Server(uvicorn.Config(app, **options))
        if count > 1:  # a terminal's Ctrl-C comes twice, also from the first process
            server.handle_exit = lambda *_: setattr(server, "should_exit", True)
        server.run(sockets=sockets)

    print(f"{checkpoint}: http://{host}:{place[1]}/openapi.json", file=sys.stderr)
    if count == 1:
        run()
    else:
        run_workers(run, count)


def uses_cuda(checkpoint: str, device: str | None) -> bool:
    """Return whether a checkpoint will be loaded on a GPU, as it is by default if there is one."""
    if device is not None:
        return device.startswith("cuda")
    with quick_imports():
        from modeling_minbert.rows import ONNX_SETTINGS

        if (Path(checkpoint) / ONNX_SETTINGS).is_file():
            return False
        import torch  # which an ONNX export does not need
    return torch.cuda.is_available()


def run_workers(run: Callable[[], None], count: int) -> None:
    """Run a function in several processes, again where one dies, until a signal ends all.

    An error in one of them ends all, too: it would fail again.
    """
    from prometheus_client.multiprocess import mark_process_dead

    running: set[int] = set()
    is_ending, failed = False, False

    def end(number: int, _: object) -> None:
        nonlocal is_ending
        is_ending = True
        for process in running:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(process, number)

    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    while running or not is_ending:
        while len(running) < count and not is_ending:
            # a signal waits until the process is known here, and has its own handlers there
            signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
            process = os.fork()
            if not process:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
                status = 1
                try:
                    run()
                    status = 0
                except Exception:
                    traceback.print_exc()
                finally:  # what follows is of the first process alone
                    os._exit(status)
            running.add(process)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        ended, status = os.wait()
        running.discard(ended)
        mark_process_dead(ended)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) and not is_ending:
            failed = True
            print("minbert serve: a worker has failed, so all end", file=sys.stderr)
            end(signal.SIGTERM, None)
    if failed:
        raise SystemExit(1)
