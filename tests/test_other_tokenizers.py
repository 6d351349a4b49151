"""Tokenizers that are not WordPiece: every problem type, and the characters of predictions."""

import json
import re

import pytest
import torch
from datasets import Dataset
from tokenizers import (
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, BertTokenizer, BertweetTokenizer

from datasets_scripts import encode_questions
from minbert_cli import finetune
from minbert_cli.checkpoints import load_tokenizer
from minbert_cli.data_notes import describe_vocabulary
from modeling_minbert import (
    Encoding,
    MinBertConfig,
    MinBertForMultiTask,
    MinBertModel,
    find_layout,
    own_tokenizer,
    split_documents,
    tokenize,
    tokenize_words,
)
from tests import small_run
from tests.problem_examples import EXAMPLES
from tests.small_tokenizers import SPECIAL, TOKENIZERS, make_bpe, make_unigram, save_start

LONGEST = 21  # tokens of a sequence


@pytest.mark.parametrize(
    ("kind", "problems"),
    [
        ("roberta", ("paraphrase", "question_answering", "masked_lm")),
        ("xlm-roberta", ("classification", "token_classification")),
        ("modernbert", ("similarity", "token_classification", "masked_lm")),
        *(pytest.param(kind, tuple(EXAMPLES), marks=pytest.mark.slow) for kind in TOKENIZERS),
    ],
)
def test_problem_types_are_trained_and_resumed_and_predicted(kind, problems, tmp_path):
    small_run.write_files(tmp_path)
    offset = 0 if kind == "modernbert" else 2
    # tuples of outputs are for whoever calls the model
    changes = {"max_position_embeddings": LONGEST + offset, "return_dict": False}
    tokenizer = save_start(tmp_path / "start", kind, **changes)
    recipe = small_run.make_recipe(tmp_path)
    del recipe["model_config"]
    keys = {
        "masked_lm": {"whole_word_mask": True},
        "paraphrase": {"truncation": "head_tail", "max_length": 12},
        "classification": {"truncation": "windows", "max_length": 8},
    }
    recipe["tasks"] = {
        f"own_{problem}": {"problem_type": problem, "batch_size": 4}
        | EXAMPLES[problem].write(tmp_path)
        | keys.get(problem, {})
        for problem in problems
    }
    recipe |= {"model_name_or_path": str(tmp_path / "start"), "max_length": LONGEST}
    steps = len(problems)
    recipe |= small_run.QUICK | {"save_strategy": "epoch"}
    recipe |= {"steps_per_epoch": steps, "num_train_epochs": 2}
    path = small_run.write_recipe(tmp_path, recipe)
    finetune.main([path])
    model = MinBertForMultiTask.from_pretrained(tmp_path / "out")

    assert model.config.longest_sequence == LONGEST
    assert model.tokenizer.get_vocab() == tokenizer.get_vocab()
    for problem in problems:
        if (rows := EXAMPLES[problem].rows) is not None:
            assert len(model.predict(f"own_{problem}", rows)) == 1
    small_run.assert_resumes(path, tmp_path / "out", steps)


def make_untrimmed():
    """Return a byte-level tokenizer whose tokens have the space before them, as of ModernBERT."""
    tokenizer = own_tokenizer(make_bpe())
    special = [("<s>", 0), ("</s>", 2)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=special
    )
    return tokenizer


def make_metaspace():
    """Return a unigram tokenizer that reads spaces as part of words."""
    tokenizer = own_tokenizer(make_unigram())
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return tokenizer


def make_whitespace():
    """Make a byte-level tokenizer that gives the first letter of each word to no token."""
    tokenizer = own_tokenizer(make_bpe())
    parts = [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    return tokenizer


MAKERS = [make_bpe, make_untrimmed, make_whitespace, make_unigram, make_metaspace]
TEXTS = {
    "accents": "the caf\u00e9 is \u00e9t\u00e9 good",
    "marks": "the cafe\u0301 is e\u0301te\u0301 good",
    "emoji": "good \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 is \U0001f600\U0001f600",
    "spaces": "  the  garden   is\u00a0good \n so  ",
    "right to left": "\u05e9\u05dc\u05d5\u05dd is \u0645\u0631\u062d \u05e2\u05d5",
    "Chinese": "\u6211\u559c\u6b22 good \u4f60\u597d",
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_an_answer_is_learnt_and_predicted_by_its_characters(make, text):
    matches = list(re.finditer(r"\S+", text))
    spans = [(a.start(), b.end()) for a in matches for b in matches if a.start() <= b.start()]
    columns = {
        "id": list(map(str, range(len(spans)))),
        "sentence1": ["how is it"] * len(spans),
        "sentence2": [text] * len(spans),
        "answers": [[text[slice(*span)]] for span in spans],
        "answer_starts": [[start] for start, _ in spans],
        "label": [0] * len(spans),
    }
    rows = encode_questions(Dataset.from_dict(columns), make(), Encoding(300))

    for row, answers, (start, end) in zip(rows, columns["answers"], spans, strict=True):
        first, last = (place - row["first_token"] for place in row["labels"])
        characters = row["token_starts"][first], row["token_ends"][last]
        assert row["passage"][slice(*characters)] == answers[0]
        assert row["passage_start"] + characters[0] == start
        assert row["passage_start"] + characters[1] == end
        shown = [
            row["passage"][a:b] for a, b in zip(row["token_starts"], row["token_ends"], strict=True)
        ]
        assert all(token == token.strip() for token in shown)


@pytest.mark.parametrize("make", MAKERS)
def test_entities_are_parts_of_the_text_and_every_word_has_tokens(make):
    tokenizer = make()
    task = {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X", "B-Y"]}
    settings = {"hidden_size": 12, "initializer_range": 2.0, "pad_token_id": 1}
    settings["max_position_embeddings"] = 512
    model = small_run.make_model({"own": task}, tokenizer, **settings)

    texts = list(TEXTS.values())
    predictions = model.predict("own", texts)
    entities = [
        (text, x) for text, row in zip(texts, predictions, strict=True) for x in row["entities"]
    ]
    assert len(entities) >= len(texts)
    for text, entity in entities:
        assert entity["text"] == text[entity["start"] : entity["end"]]
        assert entity["text"] == entity["text"].strip() != ""
    for text, row in zip(texts, predictions, strict=True):
        assert "".join(row["words"]) == "".join(text.split())
    tokens = tokenize_words(tokenizer, [row["words"] for row in predictions], 300)
    assert all(all(sentence) for sentence in tokens)
    # words apart are the tokens of the text, but for those that no space separates
    words = ["the", "garden", "is", "so", "good"]
    (pieces,) = tokenize_words(tokenizer, [words], 300)
    whole = tokenizer(" ".join(words), add_special_tokens=False)["input_ids"]
    assert [token for word in pieces for token in word] == whole


def test_spaces_around_texts_are_not_read_as_they_are_not_in_training():
    pair = {"problem_type": "paraphrase"}
    tasks = {
        "own": {"problem_type": "classification", "labels": ["a", "b"], "pooling": "mean"},
        "apart": {**pair, "pair_encoding": "separate", "truncation": "windows", "max_length": 8},
        "joint": pair,
        "answer": {"problem_type": "question_answering", "max_length": 24},
    }
    settings = {"hidden_size": 12, "initializer_range": 2.0, "pad_token_id": 1}
    model = small_run.make_model(tasks, make_bpe(), **settings)
    rows = {
        "own": ["so good", " so good\n"],
        "apart": [("so good", "is it"), ("\tso good ", " is it")],
        "joint": [("so good", "is it"), ("so good\n", "is it\u00a0")],
        "answer": [("is it", " so good "), (" is it\n", " so good ")],
    }

    for task, (plain, spaced) in rows.items():
        first, second = model.predict(task, [plain, spaced], top_k=2)
        assert [row["score"] for row in first] == pytest.approx([row["score"] for row in second])

    plain, spaced = (model.explain("own", [text])[0]["words"] for text in rows["own"])
    assert [(x["word"], x["start"] + 1, x["end"] + 1) for x in plain] == [
        (x["word"], x["start"], x["end"]) for x in spaced
    ]
    # the vectors of a task have learned that, too; others are those of sentence-transformers
    assert torch.equal(*model.encode(rows["own"], task="own"))
    assert torch.equal(*model.encode(rows["own"]))
    assert not torch.equal(*model.encode(rows["own"], pooling="mean"))


@pytest.mark.parametrize("make", MAKERS)
def test_long_texts_are_cut_with_the_special_tokens_of_the_tokenizer(make):
    tokenizer = make()
    layout, (a, b) = find_layout(tokenizer), ("the garden is so good " * 9, "so bad " * 9)
    a_ids, b_ids = tokenizer([a, b], add_special_tokens=False)["input_ids"]
    length = 16 + sum(map(len, layout))
    for truncation, parts in {
        "head": (a_ids[:8], b_ids[:8]),
        "tail": (a_ids[-8:], b_ids[-8:]),
        "head_tail": (a_ids[:2] + a_ids[-6:], b_ids[:2] + b_ids[-6:]),
    }.items():
        (row,) = tokenize(tokenizer, [(a, b)], Encoding(length, "joint", truncation))
        inner = [*layout.start, *parts[0], *layout.middle, *parts[1], *layout.end]
        assert row.input_ids[0] == inner
    encoding = Encoding(20, truncation="windows", window_overlap=4)
    (windows,) = split_documents(encoding, tokenizer, [a])
    texts = [window.input_ids[0][len(layout.start) : -len(layout.end)] for window in windows]
    assert [layout.wrap(text) for text in texts] == [window.input_ids[0] for window in windows]
    assert texts[0] + [token for text in texts[1:] for token in text[4:]] == a_ids


@pytest.mark.parametrize(
    ("kind", "step", "texts"),
    [
        ("roberta", normalizers.NFKC(), ("the \uff27arden", "the Garden")),
        ("roberta", normalizers.Replace("good", "bad"), ("the good", "the bad")),
        ("xlm-roberta", normalizers.Replace(Regex("[0-9]+"), "the"), ("42 garden", "the garden")),
    ],
)
def test_steps_of_a_file_that_its_class_does_not_have_are_read(tmp_path, kind, step, texts):
    save_start(tmp_path, kind)
    written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    written.normalizer = step
    written.save(str(tmp_path / "tokenizer.json"))
    model = MinBertModel.from_pretrained(tmp_path)

    model.save_pretrained(tmp_path / "saved")

    for read in (model.tokenizer, AutoTokenizer.from_pretrained(tmp_path / "saved")):
        assert read(texts[0])["input_ids"] == written.encode(texts[1]).ids


def use_bpe(file):
    """Put a model of another kind into a file."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[3], fuse_unk=True))
    trainer = trainers.BpeTrainer(special_tokens=[*SPECIAL, "<mask>"], show_progress=False)
    tokenizer.train_from_iterator(["the garden is so good"], trainer)
    file["model"] = json.loads(tokenizer.to_str())["model"]


CHANGES = {
    "one separator": lambda file: file.update(
        post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
    ),
    "no special tokens": lambda file: file.update(post_processor=None),
    "an unknown token": lambda file: file["model"].update(unk_id=5),
    "a token": lambda file: file["added_tokens"].append(
        file["added_tokens"][-1] | {"id": 99, "content": "gard", "special": False}
    ),
    "a model": use_bpe,
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(("roberta", change) for change in ("one separator", "no special tokens")),
        *(("xlm-roberta", x) for x in ("one separator", "an unknown token", "a token", "a model")),
    ],
)
def test_what_else_of_a_file_its_class_does_not_have_is_read(tmp_path, kind, change):
    save_start(tmp_path, kind)
    path = tmp_path / "tokenizer.json"
    file = json.loads(path.read_text(encoding="utf-8"))
    CHANGES[change](file)
    path.write_text(json.dumps(file), encoding="utf-8")
    written = Tokenizer.from_file(str(path))

    tokenizer = load_tokenizer(str(tmp_path))

    for texts in (("the garden",), ("the \u4e2d garden", "so good")):
        assert tokenizer(*texts)["input_ids"] == written.encode(*texts).ids


def test_a_file_that_its_class_cannot_read_needs_the_names_of_special_tokens(tmp_path):
    save_start(tmp_path, "xlm-roberta")
    path = tmp_path / "tokenizer.json"
    file = json.loads(path.read_text(encoding="utf-8"))
    use_bpe(file)
    path.write_text(json.dumps(file), encoding="utf-8")
    settings = {"tokenizer_class": "XLMRobertaTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")

    with pytest.raises(ValueError, match="names no pad_token to read it without the class"):
        load_tokenizer(str(tmp_path))


def test_spaces_that_its_class_splits_off_keep_the_class_of_a_file_in_silence(tmp_path, caplog):
    save_start(tmp_path, "xlm-roberta")
    written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    steps = [normalizers.Strip(left=False), normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")]
    written.normalizer = normalizers.Sequence(steps)
    written.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    written.save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "XLMRobertaTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))

    tokenizer = load_tokenizer(str(tmp_path))

    assert type(tokenizer).__name__ == "XLMRobertaTokenizer"
    assert not caplog.records
    text = "the  garden is good "
    assert tokenizer(text)["input_ids"] == written.encode(text).ids


def test_options_of_a_file_that_are_not_read_are_named(tmp_path, caplog):
    vocabulary = {name: at for at, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the"])}
    BertTokenizer(vocabulary, do_lower_case=False).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')

    assert load_tokenizer(str(tmp_path)).tokenize("The") == ["the"]
    assert "tokenizer.json has lowercase=False, but the tokenizer is read with True" in caplog.text


def test_a_file_with_another_model_has_the_options_of_its_folder(tmp_path):
    vocabulary = {name: at for at, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "The"])}
    BertTokenizer(vocabulary, do_lower_case=False).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    file = json.loads(path.read_text(encoding="utf-8"))
    file["model"]["max_input_chars_per_word"] = 5
    file["normalizer"]["lowercase"] = True  # which the folder denies
    path.write_text(json.dumps(file), encoding="utf-8")

    assert load_tokenizer(str(tmp_path)).tokenize("The TheThe") == ["The", "[UNK]"]


@pytest.mark.parametrize("make", [make_bpe, make_unigram])
def test_the_notes_of_a_vocabulary_know_its_tokenizer(make):
    assert describe_vocabulary(["the garden is lovely"], make()) == []
    (note,) = describe_vocabulary(["\u043f\u0440\u0438\u0432\u0435\u0442"], make())
    assert ("single letters" if make is make_bpe else "unknown tokens (<unk>): 50 %") in note
    if make is make_unigram:
        assert "50 % of the texts have no token" in describe_vocabulary(["the", ""], make())[0]


def test_a_bert_with_another_tokenizer_has_its_padding(tmp_path):
    tokenizer, example = make_unigram(), EXAMPLES["contrastive"]
    sizes = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 8}
    sizes |= {"num_hidden_layers": 1, "vocab_size": len(tokenizer)}
    MinBertModel(MinBertConfig(**sizes, pad_token_id=0)).save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    recipe = small_run.make_recipe(tmp_path)
    del recipe["model_config"]
    task = {"problem_type": "contrastive"} | example.write(tmp_path)
    recipe |= {"tasks": {"own": task}, "model_name_or_path": str(tmp_path / "start")}
    recipe |= small_run.QUICK
    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    model = MinBertForMultiTask.from_pretrained(tmp_path / "out")
    rows = torch.arange(5, 21).view(2, 2, 4)  # two pairs
    filler = torch.full((1, 2, 4), tokenizer.pad_token_id)
    losses = [model(input_ids=x, task="own").loss for x in (rows, torch.cat([rows, filler]))]
    torch.testing.assert_close(*losses)


def test_a_tokenizer_in_python_is_copied_and_refused_by_programs(tmp_path):
    (tmp_path / "vocab.txt").write_text("the 5\nth@@ 3\ne 2\n")
    (tmp_path / "bpe.codes").write_text("t h 5\nth e</w> 3\n")
    files = [str(tmp_path / name) for name in ("vocab.txt", "bpe.codes")]
    tokenizer = BertweetTokenizer(*files)
    own_tokenizer(tokenizer).model_max_length = 5  # as a folder for others has it
    assert tokenizer.model_max_length > 5
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="BertweetTokenizer is written in Python, and does not"):
        load_tokenizer(str(tmp_path))
