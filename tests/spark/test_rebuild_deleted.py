"""A deleted topic does not come back by `embermq spark rebuild`: its files are those of the live dispatcher."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq.repair.verify.store_check import verify
from embermq.spark.jobs.rebuild import rebuild
from tests.unit.repair.rebuild.test_follower import derived
from tests.unit.repair.rebuild.test_rebuild_deleted import builder_at, life

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended


def test_by_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    live = builder_at(tmp_path / "live")
    with live.open() as store:
        life(store, 9)
        store.wait_for_dispatch()
    expected = derived(live.root)
    shutil.rmtree(live.root / "consumequeue" / "U")
    rebuild(spark, live.root, settings=live.settings)
    assert derived(live.root) == expected
    assert not verify(live.root).flaws
