"""The table of ``minbert predict --task all``."""

import pandas as pd

from minbert_cli.predicting import flatten, join


def test_columns_are_those_of_pandas():
    prediction = {"scores": {"length": 1.5, "price": 2.0}, "label": "long"}

    columns = dict(flatten("own", prediction))

    expected = pd.json_normalize({"own": prediction}).iloc[0].to_dict()
    assert columns == expected
    (row,) = join(iter([{"own": prediction}]), iter([{"text": "a"}]), nested=False)
    assert row == expected | {"text": "a"}
