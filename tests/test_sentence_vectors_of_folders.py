"""A folder says how its vectors are made, and minBERT and sentence-transformers do as it says.

Prompts, their pooling, the size and the similarity, read and written; files that do not hold are
removed, and what sentence-transformers cannot make it refuses to open.
"""

import json
import shutil
from dataclasses import asdict

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel
from tests.small_run import make_tokenizer

WORDS = ["a", "bird", "cat", "dog", "is", "not", "on", "query", "sat", "the", "tree", ":"]
WORDS += ["passage"]
TEXTS = ["the cat sat", "a dog", "", "a bird is not a cat", "the tree"]
LONG = "the bird sat on the tree a cat is not a dog the cat sat on a tree not a bird the dog sat"
NEAR = {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"}
PROMPTS = {"query": "query : ", "passage": "passage : the "}
SIZES = {
    "vocab_size": 19,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 8,
    "max_position_embeddings": 20,
}


@pytest.fixture
def tokenizer():
    return make_tokenizer(WORDS)


def write(folder, name, values):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(values))


def read(folder, name):
    return json.loads((folder / name).read_text())


@pytest.fixture
def write_folder(tmp_path, tokenizer):
    """Return a function that writes a folder as sentence-transformers does, and its encoder."""

    def make(version=6, normalize=False, **settings):
        torch.manual_seed(0)
        bert = BertModel(BertConfig(**SIZES, initializer_range=1.0)).eval()
        folder = tmp_path / f"st{version}"
        bert.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules += [("2_Normalize", "Normalize")] if normalize else []
        place = "sentence_transformer.modules" if version == 6 else "models"
        library = f"sentence_transformers.{place}"
        kinds = [
            {"idx": i, "name": str(i), "path": path, "type": f"{library}.{kind}"}
            for i, (path, kind) in enumerate(modules)
        ]
        write(folder, "modules.json", kinds)
        own = {"pooling_mode": "mean"} if version == 6 else {"pooling_mode_mean_tokens": True}
        write(folder, "1_Pooling/config.json", {"include_prompt": True, **own})
        write(folder, "config_sentence_transformers.json", settings)
        return folder, bert

    return make


def embed(bert, tokenizer, texts, prompt=""):
    """Make vectors by the formula, one text at a time."""
    vectors = []
    for text in texts:
        inputs = tokenizer(prompt + text, truncation=True, max_length=20, return_tensors="pt")
        with torch.no_grad():
            states = bert(**inputs).last_hidden_state[0]
        vectors.append(states.mean(0))
    return torch.stack(vectors)


# Prompts, dimensions, similarity


@pytest.mark.parametrize("version", [5, 6])
def test_queries_and_documents_get_their_prompts(write_folder, tokenizer, version):
    prompts = PROMPTS | {"document": "a tree : "}
    folder, bert = write_folder(version=version, prompts=prompts)

    model = MinBertModel.from_pretrained(folder)

    for encode, prompt in [
        (model.encode, ""),
        (model.encode_query, "query : "),
        (model.encode_document, "a tree : "),
        (lambda texts: model.encode(texts, prompt_name="passage"), "passage : the "),
        (lambda texts: model.encode_query(texts, prompt_name="passage"), "passage : the "),
        (lambda texts: model.encode_query(texts, prompt=""), ""),
        (lambda texts: model.encode_document(texts, prompt="a "), "a "),
        (lambda texts: model.encode(texts, prompt="a ", prompt_name="query"), "a "),
    ]:
        assert_close(encode(TEXTS), embed(bert, tokenizer, TEXTS, prompt), atol=1e-5, rtol=1e-5)
    assert_close(model.encode_query(TEXTS[0]), model.encode_query(TEXTS)[0], atol=1e-5, rtol=1e-5)


def test_the_default_prompt_is_that_of_encode_alone(write_folder, tokenizer):
    folder, bert = write_folder(prompts=PROMPTS, default_prompt_name="passage")
    model = MinBertModel.from_pretrained(folder)
    expected = {x: embed(bert, tokenizer, TEXTS, x) for x in ("", *PROMPTS.values())}

    same = {"atol": 1e-5, "rtol": 1e-5}
    assert_close(model.encode(TEXTS), expected[PROMPTS["passage"]], **same)
    assert_close(model.encode(TEXTS, pooling="mean"), expected[PROMPTS["passage"]], **same)
    assert_close(model.encode(TEXTS, prompt=""), expected[""], **same)
    assert_close(model.encode_query(TEXTS), expected[PROMPTS["query"]], **same)
    # as in sentence-transformers, where the name `document` has an empty prompt
    assert_close(model.encode_document(TEXTS), expected[""], **same)
    assert_close(model.encode(TEXTS, prompt_name="query"), expected[PROMPTS["query"]], **same)


@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_have_the_size_of_the_folder(write_folder, tokenizer, normalize):
    folder, bert = write_folder(normalize=normalize, truncate_dim=7)
    whole = embed(bert, tokenizer, TEXTS)
    cut = (F.normalize(whole, dim=1) if normalize else whole)[:, :7]
    same = {"atol": 1e-5, "rtol": 1e-5}

    model = MinBertModel.from_pretrained(folder)

    assert_close(model.encode(TEXTS), cut, **same)
    assert_close(model.encode(TEXTS, truncate_dim=3), cut[:, :3], **same)
    assert model.encode([]).shape == (0, 7)
    unit = F.normalize(cut, dim=1)
    assert_close(model.encode(TEXTS, normalize=True), unit, **same)
    assert_close(model.encode(TEXTS, normalize=False), whole[:, :7], **same)


def test_prompts_stay_with_a_checkpoint_and_its_export(write_folder, tmp_path):
    settings = {"prompts": PROMPTS, "default_prompt_name": "query", "truncate_dim": 5}
    folder, _ = write_folder(similarity_fn_name="dot", normalize=True, **settings)
    model = MinBertModel.from_pretrained(folder)
    expected = model.encode(TEXTS), model.encode_query(TEXTS), model.encode_document(TEXTS)

    model.save_pretrained(tmp_path / "saved")
    model.save_as_sentence_transformers(tmp_path / "exported")
    joint = NEAR | {"pair_encoding": "joint"}
    tuned = MinBertForMultiTask.from_pretrained(folder, tasks={"joint": joint})
    tuned.save_pretrained(tmp_path / "tuned")

    for name in ("saved", "exported", "tuned"):
        written = read(tmp_path / name, "config_sentence_transformers.json")
        assert {key: written[key] for key in settings} == settings
        assert written["similarity_fn_name"] == "dot"
        again = MinBertModel.from_pretrained(tmp_path / name)
        assert again.similarity_fn_name == "dot"
        found = again.encode(TEXTS), again.encode_query(TEXTS), again.encode_document(TEXTS)
        assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_vectors_of_a_task_have_no_prompt_since_its_training_had_none(write_folder, tmp_path):
    folder, _ = write_folder(prompts=PROMPTS, default_prompt_name="query", truncate_dim=5)
    model = MinBertForMultiTask.from_pretrained(folder, tasks={"near": NEAR}).eval()

    vectors = model.encode(TEXTS, task="near")

    assert vectors.shape == (5, 12)
    assert_close(vectors, model.encode(TEXTS, prompt="", truncate_dim=12), atol=1e-6, rtol=1e-5)
    assert_close(model.encode_query(TEXTS, task="near"), vectors)
    model.save_as_sentence_transformers(tmp_path / "near", task="near")
    written = read(tmp_path / "near", "config_sentence_transformers.json")
    assert (written["prompts"], written["default_prompt_name"]) == ({}, None)
    assert written["truncate_dim"] is None


@pytest.mark.parametrize(
    "task",
    [
        {"pooling": "cls"},
        {"pooling": "max", "max_length": 8},
        {"pooling_layer": -2},
        {"pooling": "pooler"},
        {"truncation": "tail", "max_length": 8},
        {"truncation": "windows", "max_length": 8},
        {"problem_type": "contrastive", "num_sentences": 2, "score_range": None},
    ],
    ids=str,
)
def test_a_model_makes_the_vectors_that_its_tasks_train(write_folder, tmp_path, task):
    settings = {"prompts": PROMPTS, "default_prompt_name": "query", "truncate_dim": 5}
    folder, _ = write_folder(similarity_fn_name="dot", normalize=True, **settings)
    task = {key: value for key, value in (NEAR | task).items() if value is not None}
    tasks = {"z": {"problem_type": "classification", "labels": ["a", "b"]}, "near": task}
    tasks["a"] = NEAR  # before the other one in a file, where names are sorted
    model = MinBertForMultiTask.from_pretrained(folder, tasks=tasks).eval()
    texts = [*TEXTS, LONG]

    vectors = model.encode(texts)

    assert_close(vectors, model.encode(texts, task="near"), rtol=0, atol=0)
    model.save_pretrained(tmp_path / "saved")
    again = MinBertForMultiTask.from_pretrained(tmp_path / "saved")
    assert_close(again.encode(texts), vectors, atol=1e-6, rtol=1e-5)
    encoder = MinBertModel.from_pretrained(tmp_path / "saved")
    assert_close(encoder.encode(texts), vectors, atol=1e-6, rtol=1e-5)
    assert again.similarity_fn_name == "cosine"
    assert_close(again.encode(["a dog"]).norm(), torch.tensor(1.0))
    expected = model.encode(["query : a dog"])
    assert_close(again.encode_query(["a dog"]), expected, atol=1e-6, rtol=1e-5)


def test_vectors_that_are_chosen_after_training_stay(write_folder, tmp_path):
    folder, _ = write_folder()
    tasks = {"near": NEAR | {"pooling": "max"}, "far": NEAR | {"pooling": "cls"}}
    model = MinBertForMultiTask.from_pretrained(folder, tasks=tasks).eval()
    model.save_pretrained(tmp_path / "saved")
    other = MinBertForMultiTask.from_pretrained(tmp_path / "saved", embedding_task="far")
    assert_close(other.encode(TEXTS), model.encode(TEXTS, task="far"))
    model.config.sentence_embedding = {**asdict(model.config.embedding), "truncate_dim": 5}
    model.save_pretrained(tmp_path / "saved")

    more = {**model.config.tasks, "mine": {"problem_type": "paraphrase"}}
    again = MinBertForMultiTask.from_pretrained(tmp_path / "saved", tasks=more)

    assert_close(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6, rtol=1e-5)
    assert again.encode(TEXTS).shape == (5, 5)


# What a folder asks for and minBERT does not have


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("1_Pooling/config.json", {}, "its vectors need the file 1_Pooling/config.json"),
        (
            "sentence_bert_config.json",
            {"tokenizer_args": {"model_max_length": 8}},
            "its vectors need tokenizer_args",
        ),
        (
            "sentence_bert_config.json",
            {"modality_config": {"text": {"method_output_name": "pooler_output"}}},
            "method_output_name='pooler_output' of its Transformer",
        ),
        (
            "modules.json",
            [{"path": "", "type": "sentence_transformers.models.Transformer"}],
            "vectors without a pooling",
        ),
        (
            "modules.json",
            [{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}],
            "its vectors need the module Dense, which minBERT does not have",
        ),
        ("modules.json", [{"path": "", "type": "mine.Transformer"}], "the module Transformer"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "the pooling lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "max"]}, r"the pooling cls \+ max"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "query: "}, "default_prompt_name": "passage"},
            "the prompt 'passage', which is not among its prompts",
        ),
    ],
)
def test_what_minbert_does_not_have_is_said_at_loading(write_folder, caplog, name, values, message):
    folder, bert = write_folder(prompts=PROMPTS)
    write(folder, name, values)

    model = MinBertModel.from_pretrained(folder)

    assert "its vectors need " in caplog.text
    with pytest.raises(ValueError, match=message):
        model.encode(TEXTS)
    expected = embed(bert, model.tokenizer, TEXTS)
    assert_close(model.encode(TEXTS, pooling="mean"), expected, atol=1e-5, rtol=1e-5)


def test_prompts_that_are_not_pooled_are_refused(write_folder, tmp_path):
    folder, bert = write_folder(prompts=PROMPTS)
    write(folder, "1_Pooling/config.json", {"include_prompt": False, "pooling_mode": "mean"})
    model = MinBertModel.from_pretrained(folder)

    expected = embed(bert, model.tokenizer, TEXTS)
    assert_close(model.encode(TEXTS), expected, atol=1e-5, rtol=1e-5)
    for options in ({"prompt": "query : "}, {"prompt_name": "query"}):
        with pytest.raises(ValueError, match="leave out the tokens of a prompt"):
            model.encode(TEXTS, **options)
    model.save_as_sentence_transformers(tmp_path / "out")
    assert read(tmp_path / "out", "1_Pooling/config.json")["include_prompt"] is False


def test_a_cache_that_may_lack_modules_is_said(write_folder, tmp_path, caplog):
    folder, _ = write_folder()
    commit = tmp_path / "models--org--cls" / "snapshots" / ("a" * 40)
    shutil.copytree(folder, commit)
    (commit.parents[1] / "refs").mkdir()
    (commit.parents[1] / "refs" / "main").write_text("a" * 40)
    where = {"cache_dir": tmp_path, "local_files_only": True}

    MinBertModel.from_pretrained("org/cls", **where).encode(TEXTS)
    assert "modules.json" not in caplog.text
    (commit / "modules.json").unlink()
    MinBertModel.from_pretrained("org/cls", **where).encode(TEXTS)
    assert "org/cls: its modules.json, which may say how vectors are made, is not" in caplog.text


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "xlm-roberta", "xlnet"])
def test_settings_under_an_old_name_are_read_and_removed(write_folder, caplog, kind):
    folder, _ = write_folder()
    name = f"sentence_{kind}_config.json"
    write(folder, name, {"max_seq_length": 6})
    model = MinBertModel.from_pretrained(folder)
    assert model.config.embedding.max_length == 6
    write(folder, name, {"max_seq_length": 6, "do_lower_case": True})
    model = MinBertModel.from_pretrained(folder)
    assert "its vectors need do_lower_case" in caplog.text
    MinBertModel(MinBertConfig(**SIZES)).save_pretrained(folder)
    assert not (folder / name).exists()


# What a saved folder says


@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_embedding": {"pooling": "pooler"}},
        {"tasks": {"near": NEAR | {"pooling": "pooler"}}},
        {"tasks": {"near": NEAR | {"truncation": "tail"}}},
    ],
    ids=str,
)
def test_sentence_transformers_refuses_vectors_that_it_does_not_have(tokenizer, tmp_path, settings):
    config = MinBertConfig(**SIZES, **settings)
    model = (MinBertForMultiTask if config.tasks else MinBertModel)(config).eval()
    model.tokenizer = tokenizer
    expected = model.encode([*TEXTS, LONG])
    write(tmp_path, "modules.json", [{"path": "", "type": "sentence_transformers.models.Old"}])
    write(tmp_path, "config_sentence_transformers.json", {"prompts": {"query": "query : "}})
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 4})
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})

    model.save_pretrained(tmp_path)

    (module,) = read(tmp_path, "modules.json")
    name, _, kind = module["type"].partition(".")
    assert (tmp_path / f"{name}.py").is_file()
    # sentence-transformers calls the class of that file as one of its modules
    code = AutoModel.from_pretrained(tmp_path, trust_remote_code=True)
    library = __import__(f"{type(code).__module__.rpartition('.')[0]}.{name}", fromlist=[kind])
    with pytest.raises(ValueError, match=r"does not have what the vectors of this checkpoint need"):
        getattr(library, kind).load(str(tmp_path), subfolder="", trust_remote_code=True)
    again = type(model).from_pretrained(tmp_path)
    assert_close(again.encode([*TEXTS, LONG]), expected)


# The tokenizer


def test_a_saved_encoder_has_its_tokenizer(tokenizer, tmp_path, monkeypatch):
    model = MinBertModel(MinBertConfig(**SIZES)).eval()
    model.tokenizer = tokenizer
    vectors = model.encode([*TEXTS, LONG])  # leaves truncation set in the tokenizer

    model.save_pretrained(tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    unused = MinBertModel.from_pretrained("first")  # has not read its tokenizer
    monkeypatch.chdir(tmp_path / "first")
    unused.save_pretrained(tmp_path / "second")
    unused.save_pretrained(tmp_path / "another", False)  # on another rank
    assert not list((tmp_path / "another").glob("*"))
    with pytest.raises(ValueError, match=r"leaves the tokenizer out: call model\.push_to_hub"):
        unused.save_pretrained(tmp_path / "third", push_to_hub=True)

    again = MinBertModel.from_pretrained(tmp_path / "second")
    assert_close(again.encode([*TEXTS, LONG]), vectors)
    written = read(tmp_path / "second", "tokenizer.json")
    assert (written["truncation"], written["padding"]) == (None, None)
    assert AutoTokenizer.from_pretrained(tmp_path / "second").get_vocab() == tokenizer.get_vocab()
