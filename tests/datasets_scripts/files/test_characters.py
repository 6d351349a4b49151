"""Texts that show nothing are empty, and names that look the same are confused."""

import unicodedata

import pytest

from datasets_scripts.readers import check_twins, find_twin, is_blank

NFC, NFD = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\t\r\n",
        "\u00a0",
        "\u200b\u200c\u200d",
        "\ufeff",
        "\u2060 \u00ad",
        "\x00\x07",
        "\u3164",
    ],
)
def test_a_text_without_a_visible_character_is_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", "\u200ba", "।", "\U0001f600", "\u0301", ".", "\ufffd"])
def test_a_text_with_a_visible_character_is_not_blank(text):
    assert not is_blank(text)


def test_normal_forms_look_the_same():
    assert unicodedata.normalize("NFC", NFD) == NFC
    assert find_twin(NFC, ["tea", NFD]) == NFD
    assert find_twin(NFC, ["tea", NFC, "cafe"]) is None
    with pytest.raises(ValueError, match=r"labels 'caf\\xe9' and 'cafe\\u0301' look the same"):
        check_twins("the labels", ["tea", NFC, NFD])
    check_twins("the labels", ["tea", "Tea", "tea1", NFC])
