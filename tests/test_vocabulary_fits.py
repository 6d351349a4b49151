"""A vocabulary of another case or language is made right, or said, before training."""

import json

import pytest
from torch.testing import assert_close
from transformers import AutoTokenizer

from datasets_scripts import train_wordpiece
from minbert_cli import __main__ as minbert, finetune
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel, cpu
from tests import small_run

CYRILLIC = map(chr, range(0x430, 0x450))
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.", *CYRILLIC]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CASED = ["Film", "The", "Good", "Bad", "is", "the", "good"]
ENGLISH = ["film", "the", "good", "bad", "is"]


@pytest.fixture
def save(tmp_path, tiny_sizes):
    """Return a function that saves an encoder with a vocabulary and nothing else."""

    def save(words, **settings):
        pieces = [*SPECIAL, *words, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
        config = MinBertConfig(**tiny_sizes | {"vocab_size": len(pieces)})
        MinBertModel(config).save_pretrained(tmp_path / "start")
        (tmp_path / "start" / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
        if settings:
            path = tmp_path / "start" / "tokenizer_config.json"
            path.write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings))
        return tmp_path / "start"

    return save


def write_recipe(folder, texts, start=None):
    """Write a recipe with these texts for both labels."""
    rows = [(text, label) for text in texts for label in (0, 1)] * 4
    small_run.write_tsv(folder / "rows.tsv", ("text", "label"), rows)
    recipe = small_run.make_recipe(folder)
    path = str(folder / "rows.tsv")
    task = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
    recipe["tasks"] = {"films": task | {"train_file": path, "validation_file": path}}
    if start is not None:
        recipe = {key: value for key, value in recipe.items() if key != "model_config"}
        recipe["model_name_or_path"] = str(start)
    recipe |= {"steps_per_epoch": 1, "num_train_epochs": 1}
    return small_run.write_recipe(folder, recipe)


def test_a_cased_vocabulary_alone_keeps_the_case(save, tmp_path, capsys):
    start = save(CASED)
    finetune.main([write_recipe(tmp_path, ["The Film is Good"], start)])

    assert "[UNK]" not in capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.tokenize("The Film") == ["The", "Film"]
    minbert.main(
        ["export", str(start), "--format", "transformers", "--output_dir", str(tmp_path / "bert")]
    )
    assert AutoTokenizer.from_pretrained(tmp_path / "bert").tokenize("The Film") == ["The", "Film"]
    assert MinBertModel.from_pretrained(start).tokenizer.tokenize("The Film") == ["The", "Film"]


@pytest.mark.parametrize(
    ("words", "settings", "texts", "notes"),
    [
        (
            [*CASED, "##S"],
            {"do_lower_case": True},
            ["The Film is Good"],
            [
                "warning: the tokenizer lower-cases, so 5 pieces of its vocabulary with upper",
                "can never occur, such as '##S', 'Bad', 'Film'; if the checkpoint is cased",
            ],
        ),
        (
            CASED,
            {"do_lower_case": False},
            ["The Film is Worse", "The Film"],
            [
                "films: warning: unknown tokens ([UNK]): 16.7 % of the tokens of the training",
                "such as 'Worse': the model cannot tell them apart; take a checkpoint",
            ],
        ),
        (
            ENGLISH,
            {},
            ["Фильм был ужасно скучным."],
            ["films: warning: 77 % of the tokens are single letters within a word"],
        ),
    ],
    ids=["pieces that cannot occur", "unknown words", "another language"],
)
def test_what_does_not_fit_is_said(save, tmp_path, capsys, words, settings, texts, notes):
    minbert.main(["check", write_recipe(tmp_path, texts, save(words, **settings))])

    printed = capsys.readouterr().out
    assert all(note in printed for note in notes)
    assert ("[UNK]" in printed) == any("[UNK]" in note for note in notes)
    path = write_recipe(tmp_path, texts, save(words, **settings))
    minbert.main(["check", path, "--report_examples=0"])
    assert "Worse" not in capsys.readouterr().out  # a word of the texts


DIFFERENT = {
    "Hindi": ("सुन सेन", "राम दिल्ली में रहता है। सुन सेन।"),
    "Japanese": ("か が", "か が です か が ます ひらがなは ここに たくさん あります"),
    "Vietnamese": ("ma má", "hà nội là thủ đô của việt nam ma má mà"),
}


@pytest.mark.parametrize("language", DIFFERENT)
@pytest.mark.parametrize("lowercase", [True, False])
def test_words_that_differ_in_a_mark_stay_different(language, lowercase, tmp_path):
    words, text = DIFFERENT[language]
    first, second = words.split()
    train_wordpiece([text] * 9, 150, lowercase=lowercase).save_pretrained(tmp_path)

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)

    assert tokenizer.tokenize(first) != tokenizer.tokenize(second)


@pytest.mark.parametrize("text", ["Le Café est ouvert.", "Ёлка и чай.", "I ❤️ the Café"])
def test_a_few_accents_go_with_the_case(text):
    tokenizer = train_wordpiece([text + " and so on without any accents, as in most texts"] * 9, 99)

    assert tokenizer.tokenize("Café") == tokenizer.tokenize("cafe")


def test_tokens_of_another_tokenizer_are_not_overwritten(save, tmp_path, caplog):
    cpu.warn_once.cache_clear()
    start = save(ENGLISH)
    model, other = MinBertModel.from_pretrained(start), AutoTokenizer.from_pretrained(start)
    other.add_tokens(["covid19"])
    model.resize_token_embeddings(len(other))
    other.save_pretrained(tmp_path / "out")
    model.save_pretrained(tmp_path / "out")

    assert "if they were added to another one, assign it" in caplog.text
    assert AutoTokenizer.from_pretrained(tmp_path / "out").tokenize("covid19") == ["covid19"]
    own = MinBertModel.from_pretrained(start)
    own.tokenizer.add_tokens(["covid19"])
    with pytest.raises(ValueError, match="after adding tokens call model"):
        own.encode("covid19")
    own.resize_token_embeddings(len(own.tokenizer))
    own.save_pretrained(tmp_path / "own")
    assert_close(MinBertModel.from_pretrained(tmp_path / "own").encode("x"), own.eval().encode("x"))


def test_an_encoder_and_a_padded_vocabulary_keep_their_tokenizer(save, tmp_path, caplog):
    start = save(ENGLISH)
    encoder = MinBertForMultiTask.from_pretrained(
        start, tasks={"text": {"problem_type": "masked_lm"}}
    )
    encoder.base_model.save_pretrained(tmp_path / "encoder")
    padded = MinBertModel.from_pretrained(start)
    padded.resize_token_embeddings(pad_to_multiple_of=64)
    padded.save_pretrained(tmp_path / "padded")

    for name in ("encoder", "padded"):
        assert AutoTokenizer.from_pretrained(tmp_path / name).tokenize("film") == ["film"]
    assert "not saved" not in caplog.text


def test_a_tokenizer_that_cannot_be_saved_is_said(save, tmp_path, caplog):
    cpu.warn_once.cache_clear()
    model = MinBertModel.from_pretrained(save(ENGLISH))
    (tmp_path / "start" / "vocab.txt").unlink()
    model.save_pretrained(tmp_path / "out")

    assert "the tokenizer is not saved with the model" in caplog.text
