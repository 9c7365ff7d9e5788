"""Which batch a task is in, from the local properties that Spark gives it: as seen on Spark 4.3."""

from __future__ import annotations

import pytest

from watersmeet.engine.batch_join import id_for_ingest, id_for_join
from watersmeet.errors import WatersmeetError
from watersmeet.model.facts import BatchId, Descriptor
from watersmeet.spark.micro_batch import micro_batch, tag_of

QUERY, RUN = "ceaefa34-7ab5-4413-a683-bccf8d276808", "6a3a743d-50c2-4a04-96c9-63e2e45f1642"
SESSION, OTHER = "54992a6a-57be-4e06-ae9d-6583ecb75d55", "74d7e1a3-7749-4bd5-81bd-d75d4186fe1c"
TAGS = f"spark-session-{SESSION}-execution-root-id-0,spark-session-{SESSION}"
OPERATION = f"SparkConnect_OperationTag_User__Session_{OTHER}_Operation_{RUN}"

STREAM = {
    "sql.streaming.queryId": QUERY,
    "streaming.sql.batchId": "7",
    "spark.jobGroup.id": RUN,
    "spark.job.tags": TAGS,
}


def of(**changes: str | None) -> BatchId:
    names = {"group": "spark.jobGroup.id", "tags": "spark.job.tags", "number": "streaming.sql.batchId"}
    return micro_batch((STREAM | {names[key]: value for key, value in changes.items()}).get)


def test_a_start_is_known_by_its_session():
    assert of() == BatchId(QUERY, SESSION, 7)


@pytest.mark.parametrize("group", ["mine", OTHER, None])
def test_a_job_group_of_the_user_changes_nothing(group):
    assert of(group=group) == of()


def test_a_session_that_the_function_opens_is_not_the_start():
    assert of(tags=f"spark-session-{OTHER},{TAGS},a-tag-of-the-user") == of()


def test_the_session_is_found_where_the_user_has_cleared_the_tags():
    assert of(tags=f"spark-session-{SESSION}") == of()


def test_without_tags_the_job_group_is_the_run_id():
    assert of(tags=None) == BatchId(QUERY, RUN, 7)


@pytest.mark.parametrize("group", ["mine", "", None])
def test_without_tags_another_job_group_is_refused_by_name(group):
    with pytest.raises(WatersmeetError, match="setJobGroup.*setJobDescription"):
        of(tags=None, group=group)


def test_on_connect_the_wrapper_tells_the_batch():
    batch = BatchId(QUERY, RUN, 12)
    tags = f"{OPERATION},SparkConnect_SessionTag_User__Session_{OTHER}_Tag_{tag_of(batch)},{TAGS}"
    assert micro_batch({"spark.job.tags": tags}.get) == batch


def test_on_connect_the_thread_of_the_stream_and_the_wrapper_tell_the_same_start():
    """Adaptive execution runs the ingest stage in the one, the function runs the join stage in the other."""
    batch = of(tags=f"{OPERATION},{TAGS}")
    assert batch == BatchId(QUERY, RUN, 7)
    tags = f"SparkConnect_SessionTag_User__Session_{OTHER}_Tag_{tag_of(batch)}"
    assert micro_batch({"spark.job.tags": tags}.get) == batch


def test_a_query_started_inside_a_wrapped_function_has_ids_of_its_own():
    inherited = f"SparkConnect_SessionTag_User_me_Session_{OTHER}_Tag_{tag_of(BatchId(OTHER, OTHER, 1))}"
    assert of(tags=f"{inherited},{TAGS}") == BatchId(QUERY, RUN, 7)


def test_on_connect_without_the_wrapper_the_error_names_it():
    with pytest.raises(WatersmeetError, match="wm.foreach_batch"):
        micro_batch({"spark.job.tags": f"{OPERATION},{TAGS}"}.get)


def test_in_a_thread_without_properties_the_error_names_the_right_thread():
    with pytest.raises(WatersmeetError, match="InheritableThread") as caught:
        micro_batch({}.get)
    assert "Connect" not in str(caught.value)


def test_a_batch_join_is_named_by_what_was_read_in_any_order():
    left, right, more = (
        Descriptor(name, 0, (), null_rows=rows, digest=f"{digest:x}")
        for name, rows, digest in (("l", 3, 300), ("r", 5, 500), ("r", 5, 501))
    )
    batch = id_for_join("one", [left, right])
    assert batch == id_for_join("one", [right, left])
    assert batch != id_for_join("one", [left])
    assert batch != id_for_join("one", [left, more])
    # The same rows in two partitions.
    halves = [
        Descriptor("r", at, (), null_rows=rows, digest=f"{digest:x}")
        for at, rows, digest in ((0, 2, 99), (1, 3, 401))
    ]
    assert batch == id_for_join("one", [left, *halves])
    assert batch.query == id_for_ingest("one").query != id_for_ingest("other").query
