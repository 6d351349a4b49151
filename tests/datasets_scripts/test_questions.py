"""Questions about passages: files and forms, errors in them, and their tokens."""

import json

import datasets
import pytest
from tokenizers.normalizers import BertNormalizer

from datasets_scripts import Encoding, TaskData, encode_questions, load_task, train_wordpiece
from modeling_minbert import split_questions

PASSAGE = "The mill stood by the river. A miller lived in the mill until the flood."
LIVED = {"text": "the mill", "answer_start": 47}
QUESTIONS = [
    {
        "id": "a",
        "question": "Who lived there?",
        "answers": [{"text": "A miller", "answer_start": 29}],
    },
    {"id": "b", "question": "Where?", "answers": [LIVED, {"text": "mill", "answer_start": 4}]},
]


def nest(questions):
    paragraphs = [{"context": PASSAGE, "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"title": "Mill", "paragraphs": paragraphs}]})


def write_lines():
    """Write the questions as the Hub has them."""
    lines = []
    for question in QUESTIONS:
        answers = {
            name: [answer[name] for answer in question["answers"]]
            for name in ("text", "answer_start")
        }
        lines.append(json.dumps({**question, "context": PASSAGE, "answers": answers}))
    return "\n".join(lines)


def load(folder, train, dev=None, test=None, suffix="json", **keys):
    recipe = {"problem_type": "question_answering", **keys}
    contents = {"train": train, "validation": dev or nest(QUESTIONS), "test": test}
    for split, content in contents.items():
        if content is not None:
            path = folder / f"{split}.{suffix if split == 'train' else 'json'}"
            path.write_text(content, encoding="utf-8")
            recipe[f"{split}_file"] = str(path)
    return load_task(TaskData.from_recipe("qa", recipe))


def test_the_official_files_are_questions_with_their_passage(tmp_path):
    for split in ("train", "dev"):
        tmp_path.joinpath(f"{split}-v1.1.json").write_text(nest(QUESTIONS), encoding="utf-8")
    data = TaskData.from_recipe("squad", {"dataset": "squad"}, tmp_path)

    rows = load_task(data).splits["train"]

    texts = {"sentence1": "Where?", "sentence2": PASSAGE}
    answers = {"answers": ["the mill", "mill"], "answer_starts": [47, 4], "label": 1}
    assert rows[1] == {"id": "b", **texts, **answers}
    assert rows["answers"][0] == ["A miller"]


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (write_lines(), "json"),
        (write_lines(), "jsonl"),
        (nest(QUESTIONS).replace(", ", ",\n"), "json"),
    ],
    ids=["lines", "jsonl", "indented"],
)
def test_other_forms_hold_the_same_questions(tmp_path, content, suffix):
    rows = load(tmp_path, content, suffix=suffix).splits

    assert rows["train"].to_list() == rows["validation"].to_list()


@pytest.mark.parametrize("answers", [{}, {"answers": []}])
def test_a_file_without_answers_is_refused(tmp_path, answers):
    bare = [{"id": q["id"], "question": q["question"], **answers} for q in QUESTIONS]

    with pytest.raises(
        ValueError, match=r"train.json: .*(no answers, which|none of its 2 questions)"
    ):
        load(tmp_path, nest(bare))


def test_a_question_may_have_the_id_of_an_invalid_one(tmp_path):
    wrong = {**QUESTIONS[0], "question": ""}
    task = load(tmp_path, nest([wrong, *QUESTIONS]), max_invalid_fraction=0.5)
    assert task.splits["train"]["id"][:] == ["a", "b"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_questions_without_an_answer_count_in_any_split(tmp_path, count):
    some = [q | {"answers": []} if place < count else q for place, q in enumerate(QUESTIONS)]

    task = load(tmp_path, nest(QUESTIONS), test=nest(some))

    assert task.head_facts()["has_unanswerable"] == (count == 1)
    assert ("label" in task.splits["test"].column_names) == (count < 2)  # else not labeled


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": 3}', "article 0 of 'data' is not in SQuAD's format"),
        ('{"data": [{"paragraphs": []}]}', "the file has no questions"),
        ('{"data": [{"paragraphs": [{"qas": [{"id": 3}]}]}]}', r"article 1 of 'data' is not in"),
        ('{"data": [', r"train.json:1: not valid JSON"),
        ('{"data": [{"id": "a", "text": "b"}]}', r"article 1 .*KeyError\('paragraphs'\)"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, content)


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([PASSAGE] * 5, 60)


def encode(tokenizer, passage, answer, start=None, max_length=24):
    rows = datasets.Dataset.from_dict(
        {
            "id": ["a"],
            "sentence1": ["Where?"],
            "sentence2": [passage],
            "label": [1],
            "answers": [[answer]],
            "answer_starts": [[passage.index(answer) if start is None else start]],
        }
    )
    encoding = Encoding(max_length, max_question_length=10, doc_stride=5)
    return encode_questions(rows, tokenizer, encoding)


def read_labels(row):
    start, end = (place - row["first_token"] for place in row["labels"])
    return row["passage"][row["token_starts"][start] : row["token_ends"][end]]


@pytest.mark.parametrize("answer", ["mill", "the river", " the river. ", "A miller", "flood."])
def test_the_label_is_the_narrowest_span_that_covers_the_answer(tokenizer, answer):
    found = [read_labels(row) for row in encode(tokenizer, PASSAGE, answer) if any(row["labels"])]

    assert found
    assert set(found) == {answer.strip()}


@pytest.mark.parametrize("answer", ["दिल्ली में", "cafe\u0301", "ते"])
def test_marks_that_a_tokenizer_strips_belong_to_their_letters(answer):
    passage = f"राम {answer} रहते हैं"
    tokenizer = train_wordpiece([passage], 80)
    tokenizer.backend_tokenizer.normalizer = BertNormalizer(strip_accents=True)

    found = [read_labels(row) for row in encode(tokenizer, passage, answer) if any(row["labels"])]

    assert set(found) == {answer}


def test_emoji_accents_and_control_characters_keep_their_places(tokenizer):
    passage = "\x00\u200bThe 🏡 mílĺ\x07 stood\ufeff by 👩‍👧 the \u0301river 日本."
    for answer in ("🏡", "mílĺ", "stood", "👩‍👧", "日本"):
        rows = encode(tokenizer, passage, answer)
        found = {read_labels(row) for row in rows if any(row["labels"])}
        assert {text.strip("\u200d\x07\ufeff") for text in found} == {answer}
        for row in rows:
            place = row["passage_start"]
            assert passage[place : place + len(row["passage"])] == row["passage"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"max_length": 67}, r"max_length=67 leaves no room .*\(384 is usual"),
        ({"max_length": 384, "doc_stride": 0}, "doc_stride=0 must be at least 1"),
        ({"max_length": 384, "max_question_length": 0}, "max_question_length=0 must be"),
    ],
)
def test_sizes_that_cannot_be_are_refused(keys, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        split_questions(Encoding(**keys), tokenizer, [])
