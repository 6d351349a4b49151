"""Property tests: examples by Hypothesis, some in the fast suite and many in the slow one."""

import pytest
from hypothesis import HealthCheck, given, settings

# the temporary folder may be the same for all examples; some are slow on a busy machine
ONE_FOLDER = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def check(examples, strategy):
    """Run a test on that many examples in the fast suite, and on twenty times as many in the slow.

    The examples are the same in every run.
    """

    def decorate(test):
        quiet = {"deadline": None, "derandomize": True, "suppress_health_check": ONE_FOLDER}
        runs = [
            pytest.param(examples, id="few"),
            pytest.param(20 * examples, id="many", marks=pytest.mark.slow),
        ]

        @pytest.mark.parametrize("count", runs)
        def run(tmp_path, count):
            settings(max_examples=count, database=None, **quiet)(
                given(strategy)(lambda value: test(tmp_path, value))
            )()

        run.__doc__ = test.__doc__
        return run

    return decorate


def attempt(function, errors):
    """Call a function; return its value and the message of its error, one of them None."""
    try:
        return function(), None
    except errors as error:
        return None, str(error)
