"""Predictions split a text into the words that a model of tags was trained on."""

import json

import pytest

from minbert_cli import __main__ as minbert
from modeling_minbert import MinBertForMultiTask
from tests import small_run


def write_task(folder, name, sentences):
    """Write sentences, lists of words whose tags alternate; return the keys."""
    blocks = []
    for sentence in sentences:
        tagged = zip(sentence, ["B-PER", "O"] * len(sentence), strict=False)
        blocks.append("".join(f"{word} {tag}\n" for word, tag in tagged))
    path = folder / f"{name}.conll"
    path.write_text("\n".join(blocks), encoding="utf-8")
    files = {"train_file": str(path), "validation_file": str(path)}
    return {"problem_type": "token_classification", **files}


ENGLISH = ["Ann 's sister lives in the U.S. .", "Bob does n't pay $ 1,000.50 , he said .", "Go !"]
CASES = {
    "English": (
        [text.split() for text in ENGLISH],
        "Rome's mayor doesn't live in the U.S., but (so far) in São Paulo.",
        "Rome 's mayor does n't live in the U.S. , but ( so far ) in São Paulo .",
    ),
    "decomposed accents": (
        [text.split() for text in ENGLISH],
        "Jose\u0301 Garci\u0301a\u2019s son",
        "Jose\u0301 Garci\u0301a \u2019s son",
    ),
    "Hindi": (
        [["राम", "दिल्ली", "में", "रहता", "है", "।"]] * 3,
        "हिन्दी में सीता, दिल्ली।",
        "हिन्दी में सीता , दिल्ली ।",
    ),
    "Persian": ([["من", "می\u200cروم", "."]] * 3, "من می\u200cروم.", "من می\u200cروم ."),
    "Chinese characters": ([list("王明住在北京。")] * 3, "李四在iOS。", "李 四 在 iOS 。"),
    "Chinese and Latin characters": (
        [[*"李四用iOS拍照片。"], [*"王明住在北京。"]] * 3,
        "在iOS。",
        "在 i O S 。",
    ),
    "Thai characters": ([["แ", "ม", "ว", "นั่", "ง"]] * 3, "ที่นี่", "ที่ นี่"),
    "punctuation at words": (
        [["Ann", "went", "to", "Rome."], ["Yes,", "it", "is", "(so)", "far."]],
        "Rome, Bob's (new) home.",
        "Rome, Bob's (new) home.",
    ),
    "apostrophes in words": (
        [["Rome's", "mayor", "didn't", "."], ["It's", "Ann", "!"]],
        "Bob's home.",
        "Bob's home .",
    ),
    "French": (
        [["L'", "homme", "d'", "affaires", "."], ["Il", "n'", "aime", "qu'", "elle", "."]],
        "L\u2019ami d'Anne.",
        "L\u2019 ami d' Anne .",
    ),
}


SEGMENTED = {
    "Chinese words": ["王明", "住", "在", "北京", "。"],
    "Thai words": ["แมว", "นั่ง", "ที่", "นี่"],
    "Japanese words": ["東京", "に", "行く", "。"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a model on all kinds of words; return it and what was printed."""
    folder = tmp_path_factory.mktemp("words")
    kinds = {name: sentences for name, (sentences, _, _) in CASES.items()}
    kinds |= {name: [words] * 3 for name, words in SEGMENTED.items()}
    tasks = {name.replace(" ", "_"): sentences for name, sentences in kinds.items()}
    tasks = {name: write_task(folder, name, sentences) for name, sentences in tasks.items()}
    tasks["chosen"] = tasks["Chinese_words"] | {"words": "whitespace"}
    recipe = small_run.make_recipe(folder) | small_run.QUICK | {"tasks": tasks}
    recipe |= {"steps_per_epoch": 1, "num_train_epochs": 1}
    recipe["model_config"] |= {"vocab_size": 400}
    printed = small_run.train(small_run.write_recipe(folder, recipe))
    return MinBertForMultiTask.from_pretrained(folder / "out"), printed


@pytest.mark.parametrize("kind", CASES)
def test_a_text_is_split_into_the_words_of_the_training_file(kind, trained):
    _, text, words = CASES[kind]
    task, words = kind.replace(" ", "_"), words.split(" ")

    (found,) = trained[0].predict(task, [text])

    assert found["words"] == words
    (same,) = trained[0].predict(task, [words])
    assert found["tags"] == same["tags"]
    assert found["scores"] == pytest.approx(same["scores"])
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found["entities"])


@pytest.mark.parametrize("kind", SEGMENTED)
def test_a_text_without_the_words_of_the_training_file_is_refused(kind, trained):
    (model, printed), sentence, task = trained, SEGMENTED[kind], kind.replace(" ", "_")

    assert f"{task}: warning: words: given: no rule finds the words of the training" in printed
    with pytest.raises(ValueError, match=r"row 0 is a text, but .* give lists of words"):
        model.predict(task, ["".join(sentence)])
    assert model.predict(task, [sentence])[0]["words"] == sentence


def test_the_command_reads_such_words_from_a_file(trained, tmp_path):
    (model, _), output = trained, tmp_path / "words.jsonl"
    (tmp_path / "new.conll").write_text("上海\n在\n\n王明\n", encoding="utf-8")
    command = [model.name_or_path, "--task", "Chinese_words", "--output", str(output), "--file"]

    with pytest.raises(SystemExit):
        minbert.main(["predict", model.name_or_path, "--task", "Chinese_words", "王明住在北京。"])
    minbert.main(["predict", *command, str(tmp_path / "new.conll")])

    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [line["words"] for line in lines] == [["上海", "在"], ["王明"]]
