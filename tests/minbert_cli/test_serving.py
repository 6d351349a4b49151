"""The server: answers are those of the model, whoever asks beside, and mistakes have reasons."""

import base64
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import uvicorn

import minbert
from minbert_cli import serving
from minbert_cli.serve import uses_cuda
from modeling_minbert import export_onnx
from tests.minbert_onnx.examples import needs_onnx
from tests.modeling_minbert.conftest import WORDS
from tests.small_run import make_model

LABELS = ["down", "level", "up"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": LABELS, "pooling": "mean"},
    "topics": {"problem_type": "multi_label_classification", "labels": LABELS},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
    "same": {"problem_type": "paraphrase"},
    "near": {"problem_type": "similarity", "score_range": [1, 5], "pair_encoding": "separate"},
    "facts": {"problem_type": "question_answering", "max_question_length": 5},
}
TEXTS = ["the cat sat", "a dog", "the bird sang in a mat", "far", "a cat is not a dog"]
PAIRS = [list(pair) for pair in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]
SETTINGS = {
    "max_tokens": 64,
    "max_wait_ms": 0.0,
    "max_rows": 4096,
    "max_rows_per_request": 100,
    "max_bytes": 10_000,
    "timeout": 30.0,
    "threads": 1,
}


def build(tasks):
    """Build a small model."""
    return make_model(tasks, WORDS, max_position_embeddings=17)


@pytest.fixture(scope="module")
def model():
    """Return a small model with tasks of all kinds of rows."""
    torch.manual_seed(0)
    return build(TASKS)


class Client:
    """A connection that stays open."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def __del__(self):
        self.connection.close()

    def ask(self, path, body=None, **headers):
        """Return status, headers, and what is in the JSON of the answer."""
        method = "GET" if body is None else "POST"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self.connection.request(method, path, data, headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        is_json = answer.headers.get("content-type") == "application/json"
        return answer.status, answer.headers, json.loads(text) if is_json else text


@contextmanager
def running(model, **changes):
    """Serve a model on a free port: the port, and the `Server`."""
    settings = SimpleNamespace(**SETTINGS | changes)
    server = serving.Server(model, {"model_id": "small"}, settings)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(serving.build_app(server), log_level="error", timeout_keep_alive=30)
    http_server = uvicorn.Server(config)
    thread = threading.Thread(target=http_server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], server
    finally:
        http_server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def port(model):
    """Return the port of a server of the model."""
    with running(model) as (number, _):
        yield number


@pytest.fixture
def ask(port):
    """Return what asks the server."""
    return Client(port).ask


def rounded(value):
    """Return a value with rounded numbers."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


# Answers


@pytest.mark.parametrize("rows", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_predictions_are_those_of_the_model(ask, model, rows):
    status, _, found = ask("/predict_all", {"rows": rows})
    assert (status, found["predictions"]) == (200, rounded(model.predict_all(rows)))


def test_a_task_is_predicted_by_its_path_and_by_its_name(ask, model):
    expected = rounded(model.predict("tags", TEXTS))
    for path, tasks in (("/predict_all", ["tags"]), ("/tasks/tags/predict_all", None)):
        _, _, found = ask(path, {"rows": TEXTS, "tasks": tasks})
        assert found["predictions"] == {"tags": expected}


def test_a_word_may_be_white_space(ask, model):
    rows = [["the", " ", "cat"]]
    _, _, found = ask("/tasks/tags/predict_all", {"rows": rows})
    assert found["predictions"] == {"tags": rounded(model.predict("tags", rows))}


def test_vectors_as_openai(ask, model):
    expected = model.encode(TEXTS)
    status, _, found = ask("/v1/embeddings", {"input": TEXTS, "model": "small"})
    vectors = [each["embedding"] for each in found["data"]]
    assert (status, found["object"], found["model"]) == (200, "list", "small")
    assert np.allclose(vectors, expected, atol=1e-6)
    tokens = sum(map(len, model.tokenizer(TEXTS)["input_ids"]))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    _, _, found = ask("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"})
    packed = base64.b64decode(found["data"][0]["embedding"])
    assert np.allclose(np.frombuffer(packed, "<f4"), expected[0], atol=1e-6)
    options = {"dimensions": 5, "encoding_format": None}
    _, _, found = ask("/v1/embeddings", {"input": TEXTS[0], **options})
    cut = model.encode(TEXTS[0], truncate_dim=5, normalize=True)
    assert np.allclose(found["data"][0]["embedding"], cut, atol=1e-6)
    _, _, found = ask("/v1/embeddings", {"input": TEXTS, "model": "small/near"})
    vectors = [each["embedding"] for each in found["data"]]
    assert np.allclose(vectors, model.encode(TEXTS, task="near"), atol=1e-6)


def test_vectors_as_text_embeddings_inference(ask, model):
    for path in ("/embed", "/"):
        _, _, found = ask(path, {"inputs": TEXTS[0]})
        assert np.allclose(found, [model.encode(TEXTS[0], normalize=True).tolist()], atol=1e-6)
    _, _, found = ask("/embed", {"inputs": TEXTS, "normalize": False})
    assert np.allclose(found, model.encode(TEXTS, normalize=False), atol=1e-6)
    long = " ".join(TEXTS * 4)
    _, _, found = ask("/embed", {"inputs": long, "truncation_direction": "Left"})
    assert np.allclose(found[0], model.encode(long, truncation="tail", normalize=True), atol=1e-6)
    body = {"inputs": long, "truncation_direction": "Right"}
    for path, options in (
        ("/embed", {"truncation": "head"}),
        ("/tasks/near/embed", {"task": "near"}),
    ):
        _, _, found = ask(path, body)
        assert np.allclose(found[0], model.encode(long, normalize=True, **options), atol=1e-6)


def test_labels_as_text_embeddings_inference(ask, model):
    ranked = model.predict("tone", TEXTS, top_k=3)
    expected = [[{"label": x["label"], "score": x["score"]} for x in row] for row in ranked]
    _, _, found = ask("/tasks/tone/predict", {"inputs": TEXTS[0]})
    assert found == rounded(expected[0])
    _, _, found = ask("/tasks/tone/predict", {"inputs": [[text] for text in TEXTS]})
    assert found == rounded(expected)
    _, _, found = ask("/tasks/tone", {"inputs": TEXTS[0], "parameters": {"top_k": 2}})
    assert found == rounded([expected[0][:2]])
    _, _, found = ask("/tasks/same/predict", {"inputs": PAIRS[0]})
    assert found == rounded(model.predict("same", [PAIRS[0]], top_k=2)[0])


def test_the_first_label_is_the_one_that_is_decided():
    model = build({"same": {"problem_type": "paraphrase", "thresholds": [0.999]}})
    decided = [row["label"] for row in model.predict("same", PAIRS)]
    # all labels and the decided ones of a request do not wait at the same time
    with running(model, max_rows=len(PAIRS) + 1) as (port, _):
        _, _, found = Client(port).ask("/predict", {"inputs": PAIRS})

    assert [row[0]["label"] for row in found] == decided
    assert [max(row, key=lambda each: each["score"])["label"] for row in found] != decided


def test_tasks_are_served_where_vectors_are_not(tmp_path):
    model = build({"tone": TASKS["tone"]})
    model.save_pretrained(tmp_path)
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in (("", "Transformer"), ("1_Dense", "Dense"))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    settings = SimpleNamespace(checkpoint=tmp_path, device=None, precision="float32", **SETTINGS)
    loaded, facts = serving.load(settings)

    with running(loaded) as (port, _):
        status, _, found = Client(port).ask("/predict", {"inputs": TEXTS[0]})
        refused, _, reason = Client(port).ask("/embed", {"inputs": TEXTS[0]})
    assert (status, refused, facts["max_input_length"]) == (200, 422, 17)
    assert {each["label"] for each in found} == set(TASKS["tone"]["labels"])
    assert "its vectors need the module Dense" in reason["error"]


def test_documents_are_ranked(ask, model):
    pairs = [(TEXTS[0], text) for text in TEXTS]
    scores = [x["score"] for row in model.predict("same", pairs, top_k=2) for x in row
              if x["label"] == "paraphrase"]  # fmt: skip
    order = sorted(range(len(pairs)), key=lambda place: -scores[place])
    body = {"query": TEXTS[0], "documents": TEXTS, "top_n": 2, "model": "small/same"}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        _, _, found = ask(path, body | {"return_documents": True, "max_tokens_per_doc": None})
        assert found["results"] == rounded(
            [
                {"index": at, "relevance_score": scores[at], "document": {"text": TEXTS[at]}}
                for at in order[:2]
            ]
        )
    _, _, found = ask("/tasks/same/rerank", {"query": TEXTS[0], "texts": TEXTS})
    assert found == rounded([{"index": at, "score": scores[at]} for at in order])
    _, _, found = ask("/tasks/near/rerank", {"query": TEXTS[0], "texts": TEXTS[:1]})
    (near,) = model.predict("near", pairs[:1])
    assert found == rounded([{"index": 0, "score": (near["score"] - 1) / 4}])  # of 1 to 5
    _, _, found = ask("/v1/rerank", body)
    assert [each["document"]["text"] for each in found["results"]] == [TEXTS[x] for x in order[:2]]
    _, _, found = ask("/v2/rerank", body | {"return_documents": False})
    assert [sorted(each) for each in found["results"]] == [["index", "relevance_score"]] * 2


@pytest.mark.parametrize("kind", ["torch", pytest.param("onnx", marks=needs_onnx)])
def test_tokens_of_windows_are_counted(tmp_path, kind):
    windows = {"pair_encoding": "separate", "truncation": "windows", "max_length": 8}
    pages = {"problem_type": "similarity", "score_range": [0, 1], "window_overlap": 2, **windows}
    model = build({"pages": pages})
    long = " ".join(TEXTS)
    job = model.start_vectors([long], task="pages")[0]
    body = {"model": "small/pages"}
    if kind == "onnx":
        export_onnx(model, tmp_path)
        model = minbert.load(tmp_path)
    with running(model) as (port, _):
        client = Client(port)
        for texts, tokens in (([TEXTS[3]], 3), ([TEXTS[3]] * 20 + [long], 60 + job.tokens)):
            _, _, found = client.ask("/v1/embeddings", body | {"input": texts})
            assert found["usage"]["prompt_tokens"] == tokens


@pytest.mark.parametrize(
    ("labels", "yes"),
    [
        (["entailment", "not_entailment"], "entailment"),
        (["not_entailment", "entailment"], "entailment"),
        (["relevant", "Irrelevant"], "relevant"),
        (["no", "yes"], "yes"),
        (["1", "0"], "1"),
        (["LABEL_0", "LABEL_1"], "LABEL_1"),
    ],
)
def test_documents_are_ranked_by_the_label_that_says_yes(labels, yes):
    assert serving.find_positive("own", labels) == yes


@pytest.mark.parametrize("labels", [("in", "out"), ("no", "maybe"), ("un", "deux")])
def test_a_label_that_may_be_no_negation_ranks_nothing(labels):
    with pytest.raises(serving.RequestError, match="none of them plainly says yes"):
        serving.find_positive("own", labels)


def test_documents_are_ranked_by_a_classification_of_pairs():
    torch.manual_seed(0)
    kind = {"problem_type": "classification", "pair_encoding": "joint"}
    ranker = build(
        {
            "answers": kind | {"labels": ["entailment", "not_entailment"]},
            "kinds": kind | {"labels": ["question", "answer"]},
        }
    )
    pairs = [(TEXTS[0], text) for text in TEXTS]
    scores = [x["score"] for row in ranker.predict("answers", pairs, top_k=2) for x in row
              if x["label"] == "entailment"]  # fmt: skip
    order = sorted(range(len(pairs)), key=lambda place: -scores[place])
    with running(ranker) as (port, _):
        ask, body = Client(port).ask, {"query": TEXTS[0], "texts": TEXTS}
        assert [each["index"] for each in ask("/tasks/answers/rerank", body)[2]] == order
        status, _, found = ask("/tasks/kinds/rerank", body)
    assert status == 424
    assert "labels question, answer: none of them plainly says yes" in found["error"]


def test_models_tasks_and_routes_are_listed(ask):
    _, _, found = ask("/v1/models")
    assert [each["id"] for each in found["data"]][:2] == ["small", "small/facts"]
    assert ask("/v1/models/small/tone")[2]["id"] == "small/tone"
    assert ask("/tasks")[2]["tone"] == {
        "problem_type": "classification",
        "rows": "single texts",
        "labels": LABELS,
    }
    described = ask("/openapi.json")[2]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody")
            status, _, _ = ask(path.replace("{task}", "tone"), None if method == "get" else {})
            assert status in ((200,) if body is None else (422, 400))
            if body is not None:
                reference = body["content"]["application/json"]["schema"]["$ref"]
                assert reference.rpartition("/")[2] in described["components"]["schemas"]


def test_what_is_counted(ask):
    ask("/embed", {"inputs": TEXTS})
    _, headers, text = ask("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["minbert_tokens_total"]) >= len(TEXTS)
    counted = 'minbert_request_seconds_count{path="/embed",status="200"}'
    assert float(values[counted]) >= 1


# Many clients


def draw_request(draw):
    """Draw a request: path, body, and what it means: the rows, and a task or None for vectors."""
    task = draw.choice([*TASKS, None, None])
    kinds = {"same": PAIRS, "near": PAIRS, "facts": PAIRS}
    rows = draw.choices(kinds.get(task, TEXTS), k=draw.choice([1, 1, 1, 2, 5, 40]))
    if task is None:
        return "/embed", {"inputs": rows, "normalize": False}, rows, None
    return "/predict_all", {"rows": rows, "tasks": [task]}, rows, task


def expect(model, rows, task, known={}):  # noqa: B006  a memory
    """Return the answer to rows, each computed alone."""
    answers = []
    for row in rows:
        key = json.dumps([task, row])
        if key not in known:
            one = (
                model.encode([row], normalize=False)[0].tolist()
                if task is None
                else model.predict(task, [row])[0]
            )
            known[key] = rounded(one)
        answers.append(known[key])
    return answers


def ask_many(port, model, clients, requests):
    """Let clients ask at the same time; compare all answers."""

    def ask_some(number):
        draw, client = random.Random(number), Client(port)
        for _ in range(requests):
            path, body, rows, task = draw_request(draw)
            status, _, found = client.ask(path, body)
            assert status == 200
            assert (found if task is None else found["predictions"][task]) == expect(
                model, rows, task
            )
        return requests

    with ThreadPoolExecutor(clients) as pool:
        assert sum(pool.map(ask_some, range(clients))) == clients * requests


def test_answers_do_not_depend_on_who_asks_beside(model):
    for task in [*TASKS, None]:  # compute what is expected, before others compute
        kinds = {"same": PAIRS, "near": PAIRS, "facts": PAIRS}
        expect(model, kinds.get(task, TEXTS), task)
    with running(model, max_rows=10**6) as (port, server):
        ask_many(port, model, clients=8, requests=25)
        assert server.batcher.rows == 0


@pytest.mark.slow
def test_ten_thousand_requests(model):
    with running(model, max_rows=10**6, max_tokens=1024) as (port, _):
        ask_many(port, model, clients=25, requests=400)


def test_a_bad_request_does_not_spoil_the_batch_that_it_is_in(port, model):
    bad = ["fine", "not \ud800 text"]

    def ask_one(number):
        rows = bad if number % 4 == 0 else TEXTS
        return Client(port).ask("/predict_all", {"rows": rows, "tasks": ["tone"]})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask_one, range(16)))
    for number, (status, _, found) in enumerate(answers):
        if number % 4 == 0:
            assert status in (400, 422)
        else:
            assert found["predictions"]["tone"] == rounded(model.predict("tone", TEXTS))


# Mistakes


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/embed", b'{"inputs": "a"', 400, "not JSON"),
        ("/embed", {"inputs": 3}, 422, "Expected `str | array`, got `int`"),
        ("/embed", {"inputs": "a", "pooling": "max"}, 422, "unknown field `pooling`"),
        ("/embed", {"inputs": []}, 400, "no texts"),
        ("/embed", {"inputs": [[101, 7]]}, 422, "not token ids"),
        ("/embed", {"inputs": "a", "truncate": False}, 422, "truncated as in training"),
        ("/embed", {"inputs": "a", "prompt_name": "ask"}, 422, "unknown prompt_name 'ask'"),
        ("/embed", {"inputs": ["a"] * 101}, 413, "101 rows"),
        ("/embed", {"inputs": "a" * 10_001}, 413, "more than 10000 bytes"),
        ("/embed", {"inputs": "a", "dimensions": 25}, 422, "truncate_dim=25, but vectors have 24"),
        ("/embed", {"inputs": ["a", " "]}, 422, "row 1 has an empty text"),
        ("/v1/embeddings", {"input": ""}, 400, "row 0 has an empty text"),
        ("/predict_all", {"rows": [["a", " "]]}, 422, "row 0 has an empty text"),
        ("/tasks/tags/predict_all", {"rows": [[" ", ""]]}, 422, "row 0 has an empty text"),
        (
            *("/tasks/near/embed", {"inputs": "a", "truncation_direction": "Left"}),
            *(422, "task 'near' reads texts by truncation='head'"),
        ),
        (
            *("/tasks/tone/predict", {"inputs": "a", "parameters": {"top_k": 0}}),
            *(422, "top_k=0 must be 1 or more"),
        ),
        (
            *(
                "/tasks/tone/predict",
                {"inputs": "a", "parameters": {"function_to_apply": "sigmoid"}},
            ),
            *(422, "that of task 'tone' is softmax"),
        ),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 400, "must be 1 or more"),
        ("/v1/embeddings", {"input": "a", "model": "gpt"}, 404, "unknown model 'gpt'"),
        ("/predict", {"inputs": "a"}, 424, "several tasks fit, near, same, tone, topics"),
        ("/tasks/tags/predict", {"inputs": "a"}, 424, "tags is a token_classification task"),
        ("/tasks/ton/predict", {"inputs": "a"}, 404, "did you mean 'tone'"),
        ("/tasks/tone/predict", {"inputs": "a", "raw_scores": True}, 422, "raw_scores"),
        ("/tasks/same/predict", {"inputs": "a"}, 422, "same takes pairs"),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}, 400, "several tasks fit"),
        ("/tasks/same/rerank", {"query": "a"}, 422, "give documents, or texts"),
        (
            *("/tasks/same/rerank", {"query": "a", "texts": ["b"], "model": "small/near"}),
            *(422, "model='small/near', but the address has task 'same'"),
        ),
        ("/tasks/same/rerank", {"query": "a", "texts": ["b"], "top_n": 0}, 422, "top_n=0"),
        (
            *("/tasks/same/rerank", {"query": "a", "texts": ["b"], "max_tokens_per_doc": 9}),
            *(422, "max_tokens_per_doc: texts are truncated as in training; leave it out"),
        ),
        ("/predict_all", {"rows": [["a"]]}, 422, "row 0 must be"),
        (
            *("/predict_all", {"rows": [*[["a", "b"]] * 90, ["a"]], "tasks": ["same"]}),
            *(422, "row 90 must be"),
        ),
        ("/predict_all", {"rows": ["a"], "tasks": ["tone"], "top_k": 0}, 422, "top_k=0"),
    ],
)
def test_mistakes_are_answered_with_the_reason(ask, path, body, status, message):
    found, _, answer = ask(path, body)
    error = answer["error"]
    text = error["message"] if path.startswith("/v1") else error
    assert message in text
    assert found == status
    assert "\n" not in text


class Wrapped:
    """What passes everything on to a model."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)


class Stopped(Wrapped):
    """A model that computes only when it may."""

    def __init__(self, model):
        super().__init__(model)
        self.may, self.passes = threading.Event(), 0

    def compute(self, jobs, max_tokens=None):
        """Wait, then compute."""
        assert self.may.wait(30)
        self.passes += 1
        self.model.compute(jobs, max_tokens)


def test_too_many_rows_are_told_to_come_again(model):
    stopped = Stopped(model)
    with running(stopped, max_rows=6) as (port, server), ThreadPoolExecutor(1) as pool:
        first = pool.submit(Client(port).ask, "/embed", {"inputs": TEXTS})
        while not server.batcher.rows:
            time.sleep(0.001)
        status, headers, found = Client(port).ask("/embed", {"inputs": TEXTS})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert found == {"error": "5 rows wait already: try again", "error_type": "Overloaded"}
        stopped.may.set()
        assert first.result()[0] == 200
        assert Client(port).ask("/embed", {"inputs": TEXTS})[0] == 200


def test_calls_that_wait_are_computed_together(model):
    stopped = Stopped(model)
    with running(stopped, max_tokens=1024) as (port, server), ThreadPoolExecutor(21) as pool:
        asked = [pool.submit(Client(port).ask, "/embed", {"inputs": "a"}) for _ in range(21)]
        while server.batcher.rows < 21 or server.batcher.waiting:
            time.sleep(0.001)
        stopped.may.set()
        assert {each.result()[0] for each in asked} == {200}
        assert stopped.passes <= 4  # the first call, and what was tokenized when it was released


def test_a_client_alone_waits_for_nobody(model):
    with running(model) as (port, server):
        assert Client(port).ask("/embed", {"inputs": TEXTS * 8})[0] == 200
        assert server.batcher.crowd == 1  # however many parts the rows were computed in


@pytest.mark.parametrize(
    ("checkpoint", "device", "expected"),
    [("any", "cuda:1", True), ("any", "cpu", False), ("onnx", None, False)],
)
def test_processes_share_no_gpu(checkpoint, device, expected, tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "minbert.json").write_text("{}")

    assert uses_cuda(str(tmp_path / checkpoint), device) is expected


def test_a_client_that_goes_away_frees_its_place(model):
    stopped = Stopped(model)
    with running(stopped) as (port, server):
        first = Client(port)
        data = json.dumps({"inputs": TEXTS})
        first.connection.request("POST", "/embed", data)  # is being computed
        while not server.batcher.is_computing:
            time.sleep(0.001)
        gone = Client(port)
        gone.connection.request("POST", "/embed", json.dumps({"inputs": ["a"] * 90}))
        while server.batcher.rows < 95:
            time.sleep(0.001)
        gone.connection.close()
        while server.batcher.rows > 5:
            time.sleep(0.001)
        stopped.may.set()
        assert first.connection.getresponse().status == 200
        labels = {"path": "/embed", "status": "499"}
        assert server.registry.get_sample_value("minbert_request_seconds_count", labels) == 1


def test_a_request_does_not_wait_for_ever(model):
    stopped = Stopped(model)
    with running(stopped, timeout=0.3) as (port, server):
        status, headers, found = Client(port).ask("/embed", {"inputs": "a"})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "not computed within 0.3 seconds" in found["error"]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.sendall(b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: 20\r\n\r\n{")
            assert b" 408 " in slow.recv(4096)
        stopped.may.set()
        assert server.batcher.rows == 0


def test_a_fault_of_the_model_is_told_and_ends_with_its_batch(model, caplog):
    class Faulty(Wrapped):
        def compute(self, jobs, max_tokens=None):
            if any(len(job.encoded) == 3 for job in jobs):
                raise MemoryError
            self.model.compute(jobs, max_tokens)

    with running(Faulty(model)) as (port, _):
        client = Client(port)
        status, _, found = client.ask("/embed", {"inputs": TEXTS[:3]})
        assert (status, found["error"]) == (500, "the batch could not be computed (MemoryError)")
        assert client.ask("/embed", {"inputs": TEXTS})[0] == 200
    assert "a batch could not be computed" in caplog.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": "a"}),
        ("/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
        ("/tasks/tone/predict", {"inputs": "a"}),
        ("/tasks/near/rerank", {"query": "a", "texts": ["b", "far"]}),
        ("/predict_all", {"rows": ["a"]}),
    ],
)
def test_numbers_that_are_not_finite_are_no_answer(path, body):
    damaged = build(TASKS)
    with torch.no_grad():
        damaged.base_model.embeddings.word_embeddings.weight.fill_(torch.nan)
    with running(damaged) as (port, _):
        status, _, found = Client(port).ask(path, body)
    assert status == 500
    assert "numbers that are not finite: the weights are damaged" in str(found["error"])


def test_a_fault_of_ours_is_logged_and_told(model, caplog):
    class Faulty(Wrapped):
        def start_vectors(self, *_, **__):
            raise KeyError("a bug")

    with running(Faulty(model)) as (port, _):
        client = Client(port)
        status, _, found = client.ask("/embed", {"inputs": "a"})
        assert (status, found["error_type"]) == (500, "Backend")
        assert client.ask("/predict_all", {"rows": ["a"], "tasks": ["tone"]})[0] == 200
    assert "/embed could not be answered" in caplog.text


def test_the_key_of_clients(model, monkeypatch, caplog):
    monkeypatch.setenv(serving.API_KEY, "secret")
    with running(model) as (port, _):
        client = Client(port)
        assert client.ask("/health")[0] == 200
        for path, body in (("/embed", {"inputs": "a"}), ("/tasks", None)):
            for headers in ({}, {"authorization": "Bearer no"}):
                status, answered, found = client.ask(path, body, **headers)
                assert (status, answered["WWW-Authenticate"]) == (401, "Bearer")
                assert "MINBERT_API_KEY" in found["error"]
            for scheme in ("Bearer", "bearer", "BEARER"):
                assert client.ask(path, body, authorization=f"{scheme} secret")[0] == 200
    assert "secret" not in caplog.text


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Return a checkpoint of the model."""
    path = tmp_path_factory.mktemp("served")
    model.save_pretrained(path)
    return path


@contextmanager
def serving_process(folder, *flags):
    """Run the command on a free port, until it answers: the process and the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "minbert_cli", "serve", str(folder), "--port", str(port)]
    command += ["--precision", "float32", "--max_rows", "10000"]
    with subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None:
                try:
                    Client(port).ask("/health")
                    break
                except OSError:
                    time.sleep(0.05)
            yield process, port
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("workers", "number"), [("1", signal.SIGTERM), ("2", signal.SIGTERM), ("2", signal.SIGINT)]
)
def test_a_signal_ends_the_server_after_all_that_it_accepted(folder, model, workers, number):
    rows = random.Random(0).choices(TEXTS, k=500)
    expected = rounded(model.predict("tone", TEXTS))
    started = serving_process(folder, "--workers", workers)
    with started as (process, port), ThreadPoolExecutor(20) as pool:
        body = {"rows": rows, "tasks": ["tone"]}
        asked = [pool.submit(Client(port).ask, "/predict_all", body) for _ in range(20)]
        while "minbert_rows 10000.0" not in Client(port).ask("/metrics")[2]:
            time.sleep(0.01)
        process.send_signal(number)
        answers = [each.result() for each in asked]
        process.wait(30)
        with pytest.raises(ConnectionRefusedError):
            Client(port).ask("/health")
    known = dict(zip(TEXTS, expected, strict=True))
    for status, _, found in answers:
        assert (status, found["predictions"]["tone"]) == (200, [known[row] for row in rows])


@needs_onnx
def test_an_onnx_export_is_served(model, tmp_path):
    export_onnx(model, tmp_path)
    given = {"checkpoint": tmp_path, "precision": "auto", "device": None}
    settings = SimpleNamespace(**SETTINGS | given)
    joined, facts = serving.load(settings)
    assert facts["model_dtype"] == "onnx"
    with running(joined, max_rows=10**6) as (port, _):
        ask_many(port, model, clients=4, requests=10)
    settings.precision = "int8"
    with pytest.raises(ValueError, match="leave --precision and --device out"):
        serving.load(settings)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_worker_that_dies_is_replaced(folder):
    with serving_process(folder, "--workers", "2") as (process, port):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        before = children.read_text().split()
        os.kill(int(before[0]), signal.SIGKILL)
        while len(set(children.read_text().split()) - set(before)) < 1:
            time.sleep(0.01)
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(Client(port).ask, "/embed", {"inputs": "a"}) for _ in range(40)]
            assert {each.result()[0] for each in asked} == {200}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="several processes are forked")
def test_an_error_of_a_worker_ends_all(tmp_path):
    program = """
import os, sys, time
from minbert_cli import serve

def run():
    try:
        os.mkdir(sys.argv[1])
    except FileExistsError:
        time.sleep(60)
    assert False

serve.run_workers(run, 2)
"""
    options = {"env": os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}, "timeout": 30}
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "first")],
        check=False,
        capture_output=True,
        **options,
    )

    assert ended.returncode == 1
    assert b"AssertionError" in ended.stderr


def test_a_folder_that_is_no_checkpoint_is_an_error_of_one_line(tmp_path):
    with serving_process(tmp_path) as (process, _):
        assert process.wait(60) == 1
        assert "has no config.json" in process.stderr.read()
