"""The table and the model card of a run."""

import pytest
from huggingface_hub import ModelCard

from trainers import make_problems
from trainers.reports.cards import write_model_card
from trainers.reports.results import Results

PROBLEMS = make_problems({"moods": "classification", "my_scores": "similarity"})
METRICS = {
    "moods_accuracy": 0.51234,
    "moods_macro_f1": 0.4,
    "my_scores_pearson": -0.125,
    "my_scores_spearman": 0.25,
    "mean": 0.2,
    "leaderboard": 0.47,
}
TEMPLATE = """---
{{ card_data }}
---
# {{ model_name }}

{{ results }}
"""


def test_the_table_is_markdown_with_the_primary_metric_first():
    results = Results(METRICS, {"moods": 0.015}, {"moods": 1101, "my_scores": 9})

    assert results.table(PROBLEMS).splitlines() == [
        "| task      | metric      |   value | standard error |  rows |",
        "| --------- | ----------- | ------: | -------------: | ----: |",
        "| moods     | accuracy    |  0.5123 |         0.0150 | 1,101 |",
        "| moods     | macro_f1    |  0.4000 |                | 1,101 |",
        "| my_scores | pearson     | -0.1250 |                |     9 |",
        "| my_scores | spearman    |  0.2500 |                |     9 |",
        "| all       | mean        |  0.2000 |                |       |",
        "| all       | leaderboard |  0.4700 |                |       |",
    ]


def test_the_card_reads_back_with_its_numbers(tmp_path):
    template, path = tmp_path / "template.md", tmp_path / "out" / "README.md"
    template.write_text(TEMPLATE)

    write_model_card(
        template,
        path,
        metrics=METRICS,
        problems=PROBLEMS,
        dataset_names={"moods": "SST-5"},
        card_data={"model_name": "tiny", "language": "en", "license": "apache-2.0"},
        template_values={"model_name": "tiny", "results": "the table"},
    )

    card = ModelCard.load(path)
    found = {(r.dataset_name, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert found == {
        ("SST-5", "accuracy"): 0.51234,
        ("SST-5", "macro_f1"): 0.4,
        ("my_scores", "pearson"): -0.125,
        ("my_scores", "spearman"): 0.25,
    }
    assert card.data.model_name == "tiny"
    assert "# tiny\n\nthe table" in card.text


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "is not a file"), ("---\nlicense: mit\n---\n# fixed\n", "does not read back")],
)
def test_a_template_that_cannot_work_writes_no_card(tmp_path, text, message):
    template = tmp_path / "template.md"
    if text:
        template.write_text(text)

    with pytest.raises(ValueError, match=message):
        write_model_card(
            template,
            tmp_path / "README.md",
            metrics=METRICS,
            problems=PROBLEMS,
            dataset_names={},
            card_data={"model_name": "tiny"},
            template_values={},
        )

    assert not (tmp_path / "README.md").exists()
