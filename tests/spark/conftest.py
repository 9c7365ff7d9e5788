"""What several files of tests on Spark are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spark.shop import Shop


@pytest.fixture(scope="module")
def shop(spark, tmp_path_factory) -> Shop:
    from tests.spark.shop import open_shop

    return open_shop(spark, tmp_path_factory.mktemp("shop"))
