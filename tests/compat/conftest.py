"""Failing assertions of the shared checks show their values, as those of test modules do."""

import pytest

pytest.register_assert_rewrite("tests.support.golden_answers")
