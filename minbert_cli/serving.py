"""The HTTP server of a checkpoint: routes that clients of other servers speak, and one of ours.

OpenAI's embeddings, the rerankers of Cohere and Jina, and text-embeddings-inference (TEI), whose
routes every task also has below ``/tasks/NAME``.
"""

import asyncio
import base64
import hmac
import json
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import prometheus_client
from msgspec import Struct
from prometheus_client import multiprocess
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from minbert_cli.joining import VECTORS, Batcher, BusyError, Key, Result
from modeling_minbert import __version__, unknown
from modeling_minbert.rows import CPU_TOKENS, ONNX_SETTINGS, check_count

logger = logging.getLogger(__name__)

# The environment variable with the key of clients.
API_KEY = "MINBERT_API_KEY"
DAMAGED = "the answer has numbers that are not finite: the weights are damaged"
# Seconds after which a call that waits looks whether its client is still there.
PATIENCE = 0.25

# Types whose predictions are a label of a text or a pair, or a number.
SCORED = ("paraphrase", "similarity", "contrastive")
LABELED = ("classification", "multi_label_classification", "paraphrase", "similarity")
# Those whose decision need not be the most probable label; clients take the first one.
DECIDED = ("paraphrase",)
# How their scores are made of logits; a similarity is in the units of its range.
FUNCTIONS = {"classification": "softmax"}
FUNCTIONS |= dict.fromkeys(("multi_label_classification", "paraphrase"), "sigmoid")
# What is written before a label, or instead of it, to say no; and other labels that do.
NEGATIONS = ("not", "non", "no", "un", "ir", "in", "dis")
NO_AND_YES = (
    ("no", "yes"),
    ("0", "1"),
    ("false", "true"),
    ("negative", "positive"),
    ("label_0", "label_1"),
)
# Token ids are accepted to be refused with a reason.
Texts = str | list[str | int | list[int]]
Answer = Callable[[Request], Awaitable[Response]]
Side = Literal["left", "right", "Left", "Right"]


class Embeddings(Struct, forbid_unknown_fields=True):
    """Body of OpenAI's embeddings."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None  # the default is float
    dimensions: int | None = None
    user: str | None = None


class Embed(Struct, forbid_unknown_fields=True):
    """Body of TEI's ``embed``."""

    inputs: Texts
    normalize: bool = True
    truncate: bool | None = None
    truncation_direction: Side | None = None
    prompt_name: str | None = None
    dimensions: int | None = None


class Parameters(Struct, forbid_unknown_fields=True):
    """Parameters of a client of Hugging Face."""

    top_k: int | None = None
    function_to_apply: Literal["softmax", "sigmoid"] | None = None


class Predict(Struct, forbid_unknown_fields=True):
    """Body of TEI's ``predict``: a text, the one or two texts of a row, or a list of such rows."""

    inputs: str | list[str | list[str]]
    raw_scores: bool = False
    truncate: bool | None = None
    parameters: Parameters | None = None


class Document(Struct):
    """A document of a reranker."""

    text: str


class Rerank(Struct, forbid_unknown_fields=True):
    """Body of a reranker: ``documents`` for Cohere and Jina, ``texts`` for TEI."""

    query: str
    documents: list[str | Document] | None = None
    texts: list[str] | None = None
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None  # as Jina, whose default is yes
    return_text: bool = False
    raw_scores: bool = False
    truncate: bool | None = None
    max_tokens_per_doc: int | None = None  # LangChain sends null

    def list_texts(self) -> list[str]:
        """Return the documents, or the texts."""
        if (self.documents is None) == (self.texts is None):
            raise RequestError(422, "give documents, or texts")
        given = self.documents or self.texts or ()
        return [each if isinstance(each, str) else each.text for each in given]


class PredictAll(Struct, forbid_unknown_fields=True):
    """Body of our own route: rows for several tasks; None for all that take such rows."""

    rows: list[str | list[str]]
    tasks: list[str] | None = None
    top_k: int | None = None


class RequestError(Exception):
    """What is answered instead of a result."""

    def __init__(self, status: int, message: str, kind: str = "Validation") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Endpoint(NamedTuple):
    """A route with a body."""

    path: str
    body: type[Struct]
    answer: Callable[..., Awaitable[object]]  # of a server, a body, and the task of the path
    summary: str


class Server:
    """What answers the requests for one checkpoint.

    Args:
        model: A model, or a `MinBertOnnx`.
        facts: Answer of ``/info``.
        settings: Flags of ``minbert serve``.
    """

    def __init__(self, model: Any, facts: dict[str, Any], settings: SimpleNamespace) -> None:
        self.model, self.facts, self.settings = model, facts, settings
        self.name: str = facts["model_id"]
        self.tasks: dict[str, dict[str, Any]] = model.list_tasks()
        wait = settings.max_wait_ms / 1000
        self.batcher = Batcher(model, settings.max_tokens, wait, settings.max_rows)
        self.key = os.environ.get(API_KEY, "").encode()
        self.registry = prometheus_client.CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.seconds = prometheus_client.Histogram(
            "minbert_request_seconds",
            "requests, and how long they took",
            ["path", "status"],
            **options,
        )
        self.rows = prometheus_client.Gauge(
            "minbert_rows", "rows that wait or are computed", multiprocess_mode="livesum", **options
        )
        self.batches = prometheus_client.Counter("minbert_batches", "computed batches", **options)
        self.tokens = prometheus_client.Counter("minbert_tokens", "computed tokens", **options)

    # Calls of the model

    async def compute(
        self, tasks: Sequence[str] | None, rows: Sequence[Any], **options: Any
    ) -> Result:
        """Compute the rows of a request: predictions of tasks, or vectors."""
        if not rows:
            raise RequestError(400, "there are no texts", "Empty")
        if len(rows) > self.settings.max_rows_per_request:
            limit = self.settings.max_rows_per_request
            raise RequestError(413, f"{len(rows)} rows in a request, but at most {limit} may be")
        kinds = {self.tasks[name]["problem_type"] for name in tasks or ()}
        # of a list of words one may be white space
        is_text = any if kinds == {"token_classification"} else all
        for number, row in enumerate(rows):
            if not is_text(map(str.strip, [row] if isinstance(row, str) else row)):
                raise RequestError(422, f"row {number} has an empty text")
        given = tuple((name, value) for name, value in options.items() if value is not None)
        key = Key(None if tasks is None else tuple(tasks), given)
        return await self.batcher.run(key, rows)

    def count(self) -> None:
        """Bring the counters up to date."""
        batcher = self.batcher
        self.rows.set(batcher.rows)
        with batcher.changed:
            (batches, tokens), batcher.counts = batcher.counts, (0, 0)
        self.batches.inc(batches)
        self.tokens.inc(tokens)

    async def encode(self, given: Texts, **options: Any) -> Result:
        """Embed one or several texts; options are those of `encode`."""
        texts = [given] if isinstance(given, str) else given
        if not all(isinstance(text, str) for text in texts):
            raise RequestError(
                422,
                "send texts, not token ids, which are of another tokenizer (LangChain: "
                "check_embedding_ctx_length=False)",
            )
        found = await self.compute(None, texts, **options)
        if not np.isfinite(found.values[VECTORS]).all():  # base64 would hide it
            raise RequestError(500, DAMAGED, "Backend")
        return found

    def authorize(self, request: Request) -> None:
        """Refuse a request without the key, if there is one."""
        # names of schemes have no case (RFC 9110, section 11.1)
        given = re.sub("(?i)^bearer +", "", request.headers.get("authorization", "")).encode()
        if self.key and not hmac.compare_digest(given, self.key):
            raise RequestError(401, f"the Authorization header has not the key of {API_KEY}")

    def find_task(self, task: str | None, fits: Callable[[dict[str, Any]], bool]) -> str:
        """Return the task of a request, or the only one that fits."""
        fitting = [name for name, facts in self.tasks.items() if fits(facts)]
        if task is None and len(fitting) == 1:
            return fitting[0]
        if task is None and not fitting:
            raise RequestError(424, f"{self.name} has no task for this route", "Backend")
        if task is None:
            named = f"ask below /tasks/NAME, or for the model {self.name}/NAME"
            raise RequestError(424, f"several tasks fit, {', '.join(fitting)}: {named}", "Backend")
        if task not in self.tasks:
            raise RequestError(404, unknown("task", task, self.tasks))
        if task not in fitting:
            kind = self.tasks[task]["problem_type"]
            raise RequestError(424, f"{task} is a {kind} task, not one for this route", "Backend")
        return task

    def find_model(self, model: str | None, task: str | None) -> str | None:
        """Return the task that the name of a model means; if there is none, that of the address."""
        if model is None or model == self.name:
            return task
        named = model.removeprefix(f"{self.name}/")
        if named not in self.tasks:
            raise RequestError(404, unknown("model", model, self.list_models()), "model_not_found")
        if task not in (None, named):
            raise RequestError(422, f"model={model!r}, but the address has task {task!r}")
        return named

    def list_models(self) -> list[str]:
        """Return the names of models: the checkpoint, and each of its tasks."""
        return [self.name, *(f"{self.name}/{task}" for task in self.tasks)]


def refuse(body: Struct) -> None:
    """Refuse options whose effect the model does not have."""
    if getattr(body, "raw_scores", False):
        raise RequestError(422, "raw_scores: only probabilities and scores are served")
    way = "texts are truncated as in training; leave it out"
    if getattr(body, "truncate", None) is False:
        raise RequestError(422, f"truncate=false: {way}")
    if getattr(body, "max_tokens_per_doc", None) is not None:
        raise RequestError(422, f"max_tokens_per_doc: {way}")


async def embeddings(server: Server, body: Embeddings, task: str | None) -> object:
    """Answer as OpenAI; vectors that are cut have length 1 again."""
    task = server.find_model(body.model, task)
    is_cut = body.dimensions is not None or None
    options = {"task": task, "truncate_dim": body.dimensions, "normalize": is_cut}
    found = await server.encode(body.input, **options)
    rows = found.values[VECTORS]
    vectors: list[Any] = [row.tolist() for row in rows]
    if body.encoding_format == "base64":
        vectors = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    return {"object": "list", "data": data, "model": body.model or server.name, "usage": usage}


def choose_truncation(server: Server, task: str | None, side: Side | None) -> str | None:
    """Return what remains of a long text, and refuse what is not so for the vectors of a task."""
    if side is None:
        return None
    kept = "tail" if side.lower() == "left" else "head"
    head = None if task is None else server.model.heads.get(task)
    if head is None:
        return kept
    if (own := getattr(head.task, "truncation", kept)) != kept:
        where = f"truncation_direction={side!r}: task {task!r}"
        raise RequestError(422, f"{where} reads texts by truncation={own!r}; leave it out")
    return None


async def embed(server: Server, body: Embed, task: str | None) -> object:
    """Answer as TEI: a list of vectors, also for one text."""
    refuse(body)
    found = await server.encode(
        body.inputs,
        task=task,
        truncation=choose_truncation(server, task, body.truncation_direction),
        normalize=body.normalize,
        prompt_name=body.prompt_name,
        truncate_dim=body.dimensions,
    )
    return [row.tolist() for row in found.values[VECTORS]]


def list_rows(given: str | list[Any]) -> tuple[list[Any], bool]:
    """Return the rows of a body of ``predict``, and whether it is one row that is no list."""
    is_one = isinstance(given, str) or all(isinstance(text, str) for text in given)
    rows: list[Any] = [[given] if isinstance(given, str) else given] if is_one else list(given)
    return [row[0] if len(row) == 1 and not isinstance(row, str) else row for row in rows], is_one


async def predict(server: Server, body: Predict, task: str | None) -> object:
    """Answer as TEI: for each row its labels with their probabilities, best first."""
    refuse(body)
    task = server.find_task(task, lambda facts: facts["problem_type"] in LABELED)
    rows, is_one = list_rows(body.inputs)
    parameters = body.parameters or Parameters()
    own = FUNCTIONS.get(server.tasks[task]["problem_type"])
    if parameters.function_to_apply not in (None, own):
        raise RequestError(422, f"function_to_apply: that of task {task!r} is {own}; leave it out")
    check_count("top_k", parameters.top_k)
    result = await server.compute([task], rows, top_k=sys.maxsize)  # all labels
    scores = [
        [{"score": each["score"], "label": each.get("label", "score")} for each in row]
        for row in result.values[task]
    ]
    if server.tasks[task]["problem_type"] in DECIDED:
        # the label that is decided comes before the others of its row; not computed at the same
        # time, since the rows that wait are limited
        found = await server.compute([task], rows)
        for row, made in zip(scores, found.values[task], strict=True):
            place = [each["label"] for each in row].index(made["label"])
            row.insert(0, row.pop(place))
    scores = [row[: parameters.top_k] for row in scores]
    # clients of Hugging Face take the first row
    return scores[0] if is_one and body.parameters is None else scores


def has_pairs(facts: dict[str, Any]) -> bool:
    """Return whether a prediction of a pair is a score, or one of two labels."""
    is_binary = facts["problem_type"] == "classification" and len(facts["labels"]) == 2
    return facts["rows"] == "pairs" and (is_binary or facts["problem_type"] in SCORED)


def find_positive(task: str, labels: Sequence[str]) -> str:
    """Return the label of two that says yes, or refuse labels of which none plainly does."""
    for no, yes in (labels, labels[::-1]):
        pair = no.lower(), yes.lower()
        is_negated = pair[0].endswith(pair[1])  # as in not_entailment and irrelevant
        before = pair[0].removesuffix(pair[1]).strip(" _-")
        if pair in NO_AND_YES or (is_negated and before in NEGATIONS):
            return yes
    named = f"task {task!r} has the labels {', '.join(labels)}: none of them plainly says yes"
    raise RequestError(424, f"{named}; ask /tasks/{task}/predict", "Backend")


async def score_pairs(
    server: Server, task: str, pairs: Sequence[tuple[str, str]]
) -> tuple[list[float], int]:
    """Score pairs as other rerankers, in [0, 1], or by a cosine; also return their tokens."""
    facts = server.tasks[task]
    # whose probability is the score of a pair; None if there are no labels
    label = (facts["labels"] or [None])[-1]
    if facts["problem_type"] == "classification":
        label = find_positive(task, facts["labels"])
    result = await server.compute([task], pairs, top_k=1 if label is None else 2)
    low, high = getattr(server.model.heads.get(task).task, "score_range", None) or (0, 1)
    scores = []
    for row in result.values[task]:
        score = next(each["score"] for each in row if each.get("label") == label)
        scores.append((score - low) / (high - low))
    return scores, result.tokens


async def rerank(server: Server, body: Rerank, task: str | None) -> object:
    """Answer as Cohere and Jina, or as TEI if ``texts`` are given, best first."""
    refuse(body)
    texts = body.list_texts()
    if body.top_n is not None and body.top_n < 1:
        raise RequestError(422, f"top_n={body.top_n} must be 1 or more")
    task = server.find_task(server.find_model(body.model, task), has_pairs)
    scores, tokens = await score_pairs(server, task, [(body.query, text) for text in texts])
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[: body.top_n]
    shown: list[dict[str, object]]
    if body.texts is not None:
        shown = [{"text": text} if body.return_text else {} for text in texts]
        return [{"index": at, "score": scores[at]} | shown[at] for at in order]
    is_shown = body.return_documents is not False
    shown = [{"document": {"text": text}} if is_shown else {} for text in texts]
    return {
        "id": f"{time.time_ns():x}",
        "model": f"{server.name}/{task}",
        "results": [{"index": at, "relevance_score": scores[at]} | shown[at] for at in order],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
    }


async def predict_all(server: Server, body: PredictAll, task: str | None) -> object:
    """Predict several tasks for the same rows, in one pass of the encoder where possible."""
    if not server.tasks:
        raise RequestError(424, f"{server.name} has no tasks", "Backend")
    names = server.model.choose_tasks(body.rows, [task] if task else body.tasks)
    result = await server.compute(names, body.rows, top_k=body.top_k)
    return {"predictions": result.values}


TEI = (
    Endpoint("/embed", Embed, embed, "embed texts, as text-embeddings-inference"),
    Endpoint("/predict", Predict, predict, "labels of texts or pairs, best first"),
    Endpoint("/rerank", Rerank, rerank, "rank texts, or documents"),
    Endpoint("/predict_all", PredictAll, predict_all, "predict several tasks in one pass"),
)
# The routes with a body, those of each task below /tasks/NAME.
ENDPOINTS = (
    Endpoint("/v1/embeddings", Embeddings, embeddings, "embed texts, as OpenAI"),
    Endpoint("/v1/rerank", Rerank, rerank, "rank documents, as Cohere and Jina"),
    Endpoint("/v2/rerank", Rerank, rerank, "rank documents, as Cohere"),
    Endpoint("/", Embed, embed, "embed texts, for clients of Hugging Face"),
    *TEI,
    Endpoint("/tasks/{task}", Predict, predict, "predict, for clients of Hugging Face"),
    *(each._replace(path=f"/tasks/{{task}}{each.path}") for each in TEI),
)


# Requests


async def wait_for(answer: Awaitable[object], request: Request, seconds: float) -> object:
    """Wait for an answer, as long as its client does."""
    task = asyncio.ensure_future(answer)
    waiting: list[asyncio.Future[Any]] = [task]
    try:
        await asyncio.wait(waiting, timeout=min(PATIENCE, seconds))
        if not task.done():
            waiting.append(asyncio.ensure_future(request.receive()))  # nothing, until it is gone
            await asyncio.wait(waiting, timeout=seconds, return_when="FIRST_COMPLETED")
        if not task.done() and waiting[-1].done():
            raise ClientDisconnect
        if not task.done():
            raise RequestError(503, f"not computed within {seconds:g} seconds", "Overloaded")
        return task.result()
    finally:
        for each in waiting:
            each.cancel()  # without effect where it is done


async def post(server: Server, endpoint: Endpoint, request: Request) -> Response:
    """Answer a request with a body."""
    settings = server.settings
    server.authorize(request)
    body = bytearray()
    async with asyncio.timeout(settings.timeout):
        async for part in request.stream():
            body += part
            if len(body) > settings.max_bytes:
                raise RequestError(413, f"the body has more than {settings.max_bytes} bytes")
    asked = msgspec.json.decode(body, type=endpoint.body)
    answer = endpoint.answer(server, asked, request.path_params.get("task"))
    found = await wait_for(answer, request, settings.timeout)
    content = msgspec.json.encode(found)
    if b"null" in content:  # or what JSON has no other word for
        try:
            json.dumps(found, allow_nan=False)
        except ValueError:
            raise RequestError(500, DAMAGED, "Backend") from None
    return Response(content, media_type="application/json")


async def handle(server: Server, path: str, answer: Answer, request: Request) -> Response:
    """Answer a request to a route, or say what is wrong with it; and count it."""
    started = time.perf_counter()
    try:
        response = await answer(request)
    except RequestError as error:
        response = refusal(request, error)
    except msgspec.ValidationError as error:
        response = refusal(request, RequestError(422, f"{error}"))
    except msgspec.DecodeError as error:
        response = refusal(request, RequestError(400, f"the body is not JSON: {error}"))
    except BusyError as error:
        response = refusal(request, RequestError(429, f"{error}: try again", "Overloaded"))
    except TimeoutError:
        response = refusal(request, RequestError(408, "the body did not come in time"))
    except ClientDisconnect:
        response = Response(status_code=499)  # as nginx counts it; nobody reads it
    except ValueError as error:  # of the rows or the options
        response = refusal(request, RequestError(422, f"{error}"))
    except Exception as error:  # a fault of ours, which must not end the connection without a word
        logger.exception("%s could not be answered", path)
        reason = str(error) or type(error).__name__
        response = refusal(request, RequestError(500, reason, "Backend"))
    server.seconds.labels(path, response.status_code).observe(time.perf_counter() - started)
    server.count()
    return response


def refusal(request: Request, error: RequestError) -> Response:
    """Answer an error in the form that clients of a route expect."""
    status, message = error.status, str(error)
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if request.url.path.startswith(("/v1/", "/v2/")):
        status = 400 if status in (422, 424) else status
        kind = "invalid_request_error" if status < 500 else "server_error"
        known = {"type": kind, "param": None, "code": error.kind if status == 404 else None}
        # `message` for Cohere's clients, `detail` for Jina's
        body = {"error": {"message": message, **known}, "message": message, "detail": message}
    else:
        body = {"error": message, "error_type": error.kind}
    return Response(json.dumps(body), status, headers, "application/json")


def describe_api(server: Server) -> dict[str, Any]:
    """Describe the routes, as OpenAPI 3.1."""
    bodies = list({each.body for each in ENDPOINTS})
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    answer = {"200": {"description": "the answer"}}
    paths: dict[str, dict[str, object]] = {}
    for each in ENDPOINTS:
        schema = {"$ref": f"#/components/schemas/{each.body.__name__}"}
        operation: dict[str, object] = {
            "summary": each.summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": answer | {"4XX": {"description": "an error"}},
        }
        if "{task}" in each.path:
            names = {"type": "string", "enum": list(server.tasks)}
            named = {"name": "task", "in": "path", "required": True, "schema": names}
            operation["parameters"] = [named]
        paths[each.path] = {"post": operation}
    for path, summary in GETS.items():
        paths.setdefault(path, {})["get"] = {"summary": summary, "responses": answer}
    info = {"title": f"minBERT: {server.name}", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


GETS = {
    "/health": "whether the server answers",
    "/info": "the model and the limits, as text-embeddings-inference",
    "/tasks": "the tasks, with what their rows are, and their labels",
    "/metrics": "counters for Prometheus",
    "/v1/models": "the checkpoint and its tasks, as OpenAI",
    "/openapi.json": "this description",
}


async def get(server: Server, request: Request) -> Response:
    """Answer a request without a body."""
    path = request.url.path
    if path == "/health":
        return Response()
    server.authorize(request)
    if path == "/metrics":
        server.count()
        registry = server.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # the counters of all workers
            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        text = prometheus_client.generate_latest(registry)
        return Response(text, media_type="text/plain; version=0.0.4")
    found: Any = {"/info": server.facts, "/tasks": server.tasks}.get(path)
    if path == "/openapi.json":
        found = describe_api(server)
    elif path.startswith("/v1/models"):
        models = {
            name: {"id": name, "object": "model", "created": 0, "owned_by": "minbert"}
            for name in server.list_models()
        }
        found = {"object": "list", "data": list(models.values())}
        if wanted := request.path_params.get("model"):
            if wanted not in models:
                raise RequestError(404, unknown("model", wanted, models), "model_not_found")
            found = models[wanted]
    return Response(msgspec.json.encode(found), media_type="application/json")


def build_app(server: Server) -> Starlette:
    """Build the application of a server."""
    routes = [
        Route(path, partial(handle, server, path, partial(get, server)), methods=["GET"])
        for path in (*GETS, "/v1/models/{model:path}")
    ]
    for each in ENDPOINTS:
        answer = partial(handle, server, each.path, partial(post, server, each))
        routes.append(Route(each.path, answer, methods=["POST"]))
    return Starlette(routes=routes)


def load(settings: SimpleNamespace) -> tuple[Any, dict[str, Any]]:
    """Load a checkpoint, or an ONNX export, with the facts of ``/info``."""
    path = Path(settings.checkpoint)
    model: Any
    if (path / ONNX_SETTINGS).is_file():
        if settings.precision != "auto" or settings.device not in (None, "cpu"):
            raise ValueError(
                f"{path} is an ONNX export, of one precision and for the CPU: leave --precision "
                "and --device out"
            )
        from minbert_onnx import MinBertOnnx

        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
        model = MinBertOnnx(path)
        precision, default = "onnx", CPU_TOKENS
    else:
        import torch

        from minbert_cli.checkpoints import load_encoder, set_precision
        from modeling_minbert.inference import choose_tokens

        torch.set_num_threads(settings.threads)
        model = load_encoder(settings.checkpoint, settings.device)
        set_precision(model, settings.precision)
        precision = model.base_model.precision or str(model.dtype).removeprefix("torch.")
        default = choose_tokens(model)
    own = model.config.embedding
    refuses = own.missing or (own.default_prompt_name and not own.pools_prompt)
    longest = model.config.longest_sequence
    if not (refuses and model.list_tasks()):  # it serves vectors
        model.encode("The first call prepares the weights.")
        longest = model._plan().vectors.encoding.max_length
    settings.max_tokens = settings.max_tokens or default
    facts = {
        "model_id": path.resolve().name,
        "model_dtype": precision,
        "model_type": {"embedding": {"pooling": model.config.embedding.pooling}},
        "max_input_length": longest,
        "max_batch_tokens": settings.max_tokens,
        "max_concurrent_requests": settings.max_rows,
        "max_client_batch_size": settings.max_rows_per_request,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": __version__,
    }
    return model, facts
