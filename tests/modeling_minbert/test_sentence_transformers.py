"""Folders of sentence-transformers open here, ours open there, and the vectors are equal."""

import json

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertConfig, MinBertEmbedding, MinBertForMultiTask, MinBertModel
from tests.small_run import save_model
from tests.test_sentence_vectors_of_folders import NEAR, write

SENTENCES = ["the cat sat", "a dog", "", "a cat is not a dog", "\x07 \N{GRINNING FACE} tree"]
LONG = "the bird sang in the tree a cat is not a dog the cat sat in a tree not a bird"


@pytest.fixture
def library(monkeypatch):
    """Return sentence-transformers, if it is installed."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return pytest.importorskip("sentence_transformers")


@pytest.fixture
def model(build_multitask, tasks, tokenizer):
    """Return a multi-task model with a tokenizer."""
    extra = {
        "low": NEAR | {"pooling": "max", "pooling_layer": -2},
        "bottom": NEAR | {"pooling_layer": 0},
        "tail": NEAR | {"truncation": "tail"},
        "unprojected": NEAR | {"projection": "training"},
        "contrast": {"problem_type": "contrastive"},
        "words": {"problem_type": "masked_lm"},
    }
    return build_multitask(tasks | extra, tokenizer)


def assert_equal_vectors(vectors, expected):
    """Check that no vector is further from the expected one than a millionth of its length."""
    distances = (torch.as_tensor(vectors) - torch.as_tensor(expected)).norm(dim=1)
    assert (distances <= 1e-6 * torch.as_tensor(expected).norm(dim=1)).all(), distances


@pytest.mark.slow  # importing it takes long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "cls", "normalize": True},
        {"pooling": "max"},
        {"task": "near", "normalize": True},
        {"task": "low"},
        {"task": "unprojected"},
        {"task": "contrast"},
    ],
    ids=str,
)
def test_a_folder_of_ours_gives_equal_vectors_there_and_again_here(
    library, model, tmp_path, options
):
    texts = [*SENTENCES, LONG]
    ours = model.encode(texts, **options)

    model.save_as_sentence_transformers(tmp_path, **options)

    theirs = library.SentenceTransformer(str(tmp_path), device="cpu")
    assert_equal_vectors(theirs.encode(texts), ours)
    assert not any(theirs.prompts.values())
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "bert"
    again = MinBertModel.from_pretrained(tmp_path)
    assert_equal_vectors(again.encode(texts), ours)


@pytest.mark.slow  # importing it takes long
@pytest.mark.parametrize("default", [None, "query", "passage"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_prompts_size_and_similarity_are_the_same_there_and_here(
    library, model, tmp_path, pooling, default
):
    options = {"pooling": pooling, "normalize": pooling == "cls"}
    model.save_as_sentence_transformers(tmp_path / "plain", **options)
    texts, prompts = [*SENTENCES, LONG], {"query": "the bird ", "passage": "a dog "}
    theirs = library.SentenceTransformer(
        str(tmp_path / "plain"), device="cpu", prompts=prompts, default_prompt_name=default,
        similarity_fn_name="dot", truncate_dim=9,
    )  # fmt: skip
    theirs.max_seq_length = 6
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    ours = MinBertModel.from_pretrained(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    options = {"device": "cpu", "trust_remote_code": True}
    opened = library.SentenceTransformer(str(tmp_path / "ours"), **options)
    opened.save(str(tmp_path / "again"), create_model_card=False)
    loaded = MinBertModel.from_pretrained(tmp_path / "again")

    for method in ("encode", "encode_query", "encode_document"):
        expected = torch.as_tensor(getattr(theirs, method)(texts))
        for each in (ours, opened, loaded):
            assert_equal_vectors(getattr(each, method)(texts), expected)
    expected = theirs.similarity(expected, expected)
    for each in (ours, opened, loaded):
        assert_close(each.similarity(*[each.encode_document(texts)] * 2), expected)


@pytest.mark.slow  # importing it takes long
def test_sentence_transformers_opens_no_folder_without_a_tokenizer(library, model, tmp_path):
    model.base_model.save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="has no tokenizer"):
        library.SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "pooler"}, "does not support pooling='pooler'"),
        ({"task": "tone"}, "does not support pooling='pooler'"),
        ({"task": "bottom"}, "does not support the layer of the embeddings"),
        ({"max_length": 2}, "max_length=2 must be 3 or more"),
        ({"task": "words"}, "'words' is a masked_lm task, which has no vectors"),
    ],
)
def test_vectors_that_have_no_place_there_are_refused(model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        model.save_as_sentence_transformers(tmp_path / "st", **options)

    assert not (tmp_path / "st").exists()


def test_a_checkpoint_is_not_overwritten(model, tmp_path):
    model.save_pretrained(tmp_path)

    for save in (model.save_as_sentence_transformers, model.save_as_transformers):
        with pytest.raises(ValueError, match="holds a minBERT checkpoint, which would be lost"):
            save(tmp_path)
    MinBertForMultiTask.from_pretrained(tmp_path)


def test_files_of_sentence_transformers_win_over_the_configuration(tiny_sizes, tmp_path):
    own = {"pooling": "mean", "normalize": True}
    config = MinBertConfig(**tiny_sizes, sentence_embedding=own)
    MinBertModel(config).save_pretrained(tmp_path)
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": "cls"})  # as it saves our weights

    loaded = MinBertConfig.from_pretrained(tmp_path)

    assert loaded.embedding == MinBertEmbedding(pooling="cls", normalize=True)
    for size in (33, 36):  # another model in the same folder
        config = MinBertConfig(**tiny_sizes | {"hidden_size": size}, sentence_embedding=own)
        MinBertModel(config).save_pretrained(tmp_path)
    pooling = json.loads((tmp_path / "1_Pooling/config.json").read_text())
    assert pooling["word_embedding_dimension"] == 36


@pytest.mark.slow  # importing it takes long
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_sentence_transformers_opens_a_checkpoint_and_saves_it_with_another_pooling(
    library, model, tmp_path, pooling
):
    tasks = {"near": NEAR | {"pooling": pooling}}
    own = save_model(tmp_path / "own", tasks, model.tokenizer)

    opened = library.SentenceTransformer(
        str(tmp_path / "own"), trust_remote_code=True, device="cpu"
    )
    opened.save(str(tmp_path / "theirs"))
    settings = json.loads((tmp_path / "theirs" / "1_Pooling" / "config.json").read_text())
    write(tmp_path / "theirs", "1_Pooling/config.json", settings | {"pooling_mode": "max"})
    again = library.SentenceTransformer(
        str(tmp_path / "theirs"), trust_remote_code=True, device="cpu"
    )

    assert_equal_vectors(opened.encode(SENTENCES), own.encode(SENTENCES))
    loaded = MinBertModel.from_pretrained(tmp_path / "theirs")
    assert_equal_vectors(again.encode(SENTENCES), loaded.encode(SENTENCES))
    assert loaded.config.embedding.pooling == "max"


def test_a_part_of_a_folder_that_does_not_say_its_pooling_is_named(tiny_sizes, tmp_path, caplog):
    folder = tmp_path / "0_Transformer"
    MinBertModel(MinBertConfig(**tiny_sizes)).save_pretrained(folder)
    (folder / "modules.json").unlink(missing_ok=True)
    (folder / "sentence_bert_config.json").write_text("{}")

    for path, where in ((folder, {}), (tmp_path, {"subfolder": folder.name})):
        caplog.clear()
        MinBertModel.from_pretrained(path, **where)
        assert "whose modules.json says how vectors are made" in caplog.text
