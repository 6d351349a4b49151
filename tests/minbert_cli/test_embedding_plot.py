import matplotlib.image
import pytest

from minbert_cli.evaluating.plot import plot_scores


@pytest.mark.parametrize("count", [1, 2, 6])
def test_every_checkpoint_and_score_makes_the_picture_higher(tmp_path, count):
    row = {"sts-b dev pearson": 81.25, "MR": 70.0, "mean": 70.0}

    plot_scores({f"runs/$a{number}": row for number in range(count)}, tmp_path / "table.png")
    plot_scores({f"runs/$a{number}": row for number in range(count + 1)}, tmp_path / "more.png")

    height, width = matplotlib.image.imread(tmp_path / "table.png").shape[:2]
    assert matplotlib.image.imread(tmp_path / "more.png").shape[0] > height
    assert width == 1200
