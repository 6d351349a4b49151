"""Messages about unknown names."""

import pytest

from modeling_minbert import suggest, unknown

NAMES = ["accuracy", "macro_f1", "f1", "mcc"]


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("acc", NAMES, "; did you mean 'accuracy'? known: accuracy, macro_f1, f1, mcc"),
        ("Acuracy", NAMES, "; did you mean 'accuracy'? known: accuracy, macro_f1, f1, mcc"),
        ("bleu", NAMES, "; known: accuracy, macro_f1, f1, mcc"),
        ("bleu", [], "; known: none"),
        (None, NAMES, "; known: accuracy, macro_f1, f1, mcc"),
        ("name_7", [f"name_{n}0" for n in range(13)], "; did you mean 'name_70'"),
        ("other", [f"name_{n}" for n in range(100)], ""),
    ],
)
def test_similar_names_come_before_a_short_list_of_all(name, known, message):
    found = suggest(name, known)

    assert found.startswith(message)
    assert ("known" in found) == ("known" in message)


def test_the_message_names_what_is_unknown():
    message = unknown("metric", "bleu", ["f1"])

    assert message == "unknown metric 'bleu'; known: f1"
