"""Job files: what a good one means, and the one sentence that each bad one gets."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest

from watersmeet.cli.run import run
from watersmeet.engine.options import JoinOptions
from watersmeet.errors import ConfigError
from watersmeet.jobs import file, parts
from watersmeet.jobs.file import load_job, parse_job
from watersmeet.jobs.model import AvailableNow, Every, Job, Sink, Source, TableSource
from watersmeet.jobs.parts import tomllib
from watersmeet.jobs.secrets import expand_all, looks_secret, scrub, secrets_of, shown
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.tables.spec import Address

SMALL = """
[inputs.l]
format = "parquet"
path = "left"
[inputs.r]
format = "rate"
[join]
on = "l.k = r.value"
[sink]
format = "noop"
[job]
checkpoint = "cp"
"""

FULL = """
[inputs.l]
format = "csv"
path = "data/left"
schema = "k BIGINT, x INT"
where = "x > 0"
columns = ["k", "x * 2 AS twice"]
options = { header = true, maxFilesPerTrigger = 3 }

[inputs.r]
format = "kafka"
columns = ["CAST(value AS STRING) AS v"]
[inputs.r.options]
subscribe = "topic"
kafka.bootstrap.servers = "broker:9092"
"kafka.sasl.jaas.config" = "password=${SECRET};"

[join]
on = "l.k = r.v"
select = ["l.k", "r.v"]
name = "mine"
tasks = 4

[sink]
format = "parquet"
path = "s3a://bucket/out"
mode = "append"
options = { compression = "zstd" }

[job]
name = "full"
checkpoint = "${BASE}/cp"
state = "~/state"
trigger = "5 seconds"

[spark]
spark.master = "local[4]"
"spark.sql.shuffle.partitions" = 8
spark.ui.enabled = false
"""


def parse(text: str, **env: str) -> Job:
    return parse_job(text, Path("/jobs/a.toml"), env)


def changed(old: str, new: str, text: str = SMALL) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_a_small_file_takes_the_defaults():
    assert parse(SMALL) == Job(
        file=Path("/jobs/a.toml"),
        name="a",
        inputs=(Source("l", "parquet", "/jobs/left"), Source("r", "rate")),
        join=JoinOptions(on="l.k = r.value", state="/jobs/cp/watersmeet"),
        sink=Sink("noop"),
        checkpoint="/jobs/cp",
        state="/jobs/cp/watersmeet",
        trigger=Every("0 seconds"),
    )


def test_a_full_file_is_taken_word_by_word():
    job = parse(FULL, SECRET="hunter22", BASE="/base")
    left, right = job.inputs
    assert left == Source(
        name="l",
        format="csv",
        path="/jobs/data/left",
        schema="k BIGINT, x INT",
        where="x > 0",
        columns=("k", "x * 2 AS twice"),
        options={"header": "true", "maxFilesPerTrigger": "3"},
    )
    assert right.options["kafka.bootstrap.servers"] == "broker:9092"
    assert job.join == JoinOptions(
        on="l.k = r.v", name="mine", select=("l.k", "r.v"), tasks=4, state=str(Path("~/state").expanduser())
    )
    assert job.sink == Sink("parquet", "s3a://bucket/out", {"compression": "zstd"})
    assert (job.name, job.checkpoint, job.state) == ("full", "/base/cp", str(Path("~/state").expanduser()))
    assert job.trigger == Every("5 seconds")
    assert job.spark == {
        "spark.master": "local[4]",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
    }


def test_the_help_names_every_key_of_a_job_file():
    """The guide sends readers there."""
    text = inspect.cleandoc(run.__doc__).partition("All keys of a job file:\n")[2]
    text = textwrap.dedent(text.partition("The SQL in a job file")[0])
    assert set(tomllib.loads(text)) == set(file._TABLES)
    keys = {
        "inputs": {*parts._INPUT_KEYS, *file._TABLE_KEYS, *parts._NATIVE_OPTIONS},
        "join": file._JOIN_KEYS,
        "sink": parts._SINK_KEYS,
        "job": file._JOB_KEYS,
    }
    for table, known in keys.items():
        sections = re.findall(rf"^\[{table}\b.*?(?=^\[(?!{table})|\Z)", text, re.MULTILINE | re.DOTALL)
        assert set(known) <= set(re.findall(r"\w+", "".join(sections))), table


def test_a_credential_is_filled_in_only_for_spark():
    job = parse(FULL, SECRET="hunter22", BASE="/base")
    assert "hunter22" not in repr(job)
    options = expand_all(job.inputs[1].options, {"SECRET": "hunter22"}, "")
    assert options["kafka.sasl.jaas.config"] == "password=hunter22;"


TABLE = """
[inputs.s]
format = "rate"
[inputs.p]
path = "products"
key = ["region", "id"]
refresh = "10 minutes"
in_place = false
page_bytes = 65536
page_rows = 100
patience = "2 minutes"
[join]
on = "s.value = p.id"
how = "left"
max_delay = "30 seconds"
memory = "32 MB"
[sink]
format = "noop"
[job]
checkpoint = "cp"
"""


BUDGET = SMALL.replace(
    'on = "l.k = r.value"',
    'on = "l.k = r.value"\nmemory = "1 MB"\npay_within = "10 minutes"\ndefer = "auto"',
)


def test_a_job_says_how_long_results_may_be_owed_and_when_they_are_deferred():
    job = parse(BUDGET)
    assert (job.join.pay_within_ms, job.join.defer_ms, job.beats) == (600_000, 0, True)
    with pytest.raises(ConfigError, match=r"\[join\]: defer must be a duration"):
        parse(BUDGET.replace('"auto"', '"soon"'))


@pytest.mark.parametrize(
    ("text", "sources", "message"),
    [
        (
            BUDGET,
            2,
            "was begun without pay_within, which needs a source beside the inputs, and Spark cannot add one",
        ),
        (
            SMALL,
            3,
            "was begun with pay_within or max_delay, which needs .* cannot drop one. Put it back, or start with",
        ),
    ],
    ids=["added", "dropped"],
)
def test_a_checkpoint_keeps_its_source_of_beats(text, sources, message):
    from watersmeet.jobs.preflight import check_beats

    for fits in (Checkpoint(None, 0), Checkpoint("q", 3, 5 - sources), Checkpoint("q", 3, 7)):
        check_beats(parse(text), fits)
    with pytest.raises(ConfigError, match=message):
        check_beats(parse(text), Checkpoint("q", 3, sources))


def test_a_new_checkpoint_is_refused_a_folder_with_the_results_of_another(tmp_path):
    """Spark's file sink skips batches that it has, and the join would never see their rows."""
    from watersmeet.jobs.preflight import check_sink

    (tmp_path / "paid" / "_spark_metadata").mkdir(parents=True)
    text = changed('format = "noop"', f'format = "parquet"\npath = "{tmp_path}/paid"')
    check_sink(parse(text), Checkpoint(None, 0))
    (tmp_path / "paid" / "_spark_metadata" / "9.compact").touch()
    with pytest.raises(
        ConfigError, match=r"paid has the results of another checkpoint.* Write to a new folder"
    ):
        check_sink(parse(text), Checkpoint(None, 0))
    # Its own first batch, which Spark has planned.
    check_sink(parse(text), Checkpoint("q", 0, 2))
    check_sink(parse(SMALL), Checkpoint(None, 0))


def test_an_input_with_a_key_is_a_table():
    job = parse(TABLE)
    assert job.inputs[1] == TableSource(
        "p",
        Address("/jobs/products"),
        ("region", "id"),
        refresh="10 minutes",
        in_place=False,
        page_rows=100,
        page_bytes=65536,
        patience="2 minutes",
    )
    assert (job.join.how, job.join.max_delay, job.join.memory) == ("left", "30 seconds", "32 MB")


def test_the_uri_of_a_database_stays_as_it_was_written():
    text = changed('path = "products"', 'path = "postgresql://ada:${PASSWORD}@db/shop"\ntable = "t"', TABLE)
    job = parse(text, PASSWORD="hunter22")
    assert "hunter22" not in repr(job)
    assert job.inputs[1].place.text == "postgresql://ada:${PASSWORD}@db/shop"
    with pytest.raises(ConfigError, match="PASSWORD"):
        parse(text)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('key = ["region", "id"]', "key = 3", "key must be a text"),
        ("in_place = false", 'in_place = "no"', "in_place must be true or false"),
        ('path = "products"', 'format = "parquet"', "has no key 'format'"),
        ('refresh = "10 minutes"', "refresh = true", "refresh must be a text"),
        ("page_rows = 100", "page_rows = 0", "page_rows must be an integer of at least 1"),
        ('memory = "32 MB"', "memory = true", 'memory must be a text, such as "64 MB", or a number'),
        ('memory = "32 MB"', 'memory = "lots"', "[join]: memory='lots': give a number of bytes"),
    ],
)
def test_what_a_table_does_not_take_is_named(old, new, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse(changed(old, new, TABLE))


NATIVE = changed(
    'format = "rate"',
    'format = "csv"\npath = "sales"\nschema = "value BIGINT"\nnative = true\ncolumns = ["value"]\n'
    "options = { maxFilesPerTrigger = 5, header = true, movedFrom = '/old' }",
    TABLE,
)


def test_an_input_can_be_read_by_the_tasks_themselves():
    source = parse(NATIVE).inputs[0]
    assert isinstance(source, Source)
    assert source.native
    assert source.options == {"maxFilesPerTrigger": "5", "header": "true", "movedFrom": "/old"}
    assert not parse(FULL, SECRET="", BASE="").inputs[0].native


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("native = true", 'native = "yes"', "native must be true or false"),
        ('path = "sales"\n', "", "native = true reads the files of a directory"),
        ("maxFilesPerTrigger", "maxFileAge", "with native = true, has no key 'maxFileAge'"),
        ('["value"]', '["value * 2 AS two"]', "with native = true, columns are names"),
    ],
)
def test_what_a_native_input_does_not_take_is_named(old, new, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse(changed(old, new, NATIVE))


@pytest.mark.parametrize(
    "text, trigger",
    [
        ("once", AvailableNow()),
        ("available-now", AvailableNow()),
        ("Available-Now", AvailableNow()),
        ("as fast as possible", Every()),
        ("continuous as fast as possible", Every()),
        ("500 milliseconds", Every("500 milliseconds")),
        ("1  minute", Every("1 minute")),
    ],
)
def test_triggers(text, trigger):
    assert parse(SMALL + f'trigger = "{text}"').trigger == trigger


def test_state_from_the_session_settings():
    assert parse(SMALL + '[spark]\nspark.watersmeet.state = "elsewhere"').state == "/jobs/elsewhere"


@pytest.mark.parametrize(
    "text, message",
    [
        ("[inputs", "a.toml is not valid TOML: "),
        ("[sink]\npath = out", "at line 2, column 8); a text stands in quotes"),
        ("", "a.toml needs two or more inputs, each in a table such as [inputs.o]"),
        (changed("[job]", "[jobs]"), "a.toml has no key 'jobs'; did you mean 'job'?"),
        (changed("[sink]", "[output]"), "a.toml has no key 'output'; did you mean 'sink'?"),
        (changed('[join]\non = "l.k = r.value"', ""), "a.toml lacks the table [join]"),
        (changed('[sink]\nformat = "noop"', ""), "a.toml lacks the table [sink]"),
        (changed('[job]\ncheckpoint = "cp"', ""), "a.toml lacks the table [job]"),
        (changed('[inputs.r]\nformat = "rate"', ""), "a.toml needs two or more inputs"),
        ("inputs = 3", "a.toml needs two or more inputs"),
        ("inputs = { l = 1, r = 2 }", "a.toml: [inputs.l] must be a table of keys and values, not 1"),
        (
            changed('format = "rate"', 'fromat = "rate"'),
            "[inputs.r] has no key 'fromat'; did you mean 'format'?",
        ),
        (
            changed('format = "rate"', 'select = ["x"]'),
            "[inputs.r] has no key 'select'; did you mean 'columns'?",
        ),
        (
            changed('format = "rate"', "zzz = 1"),
            "[inputs.r] has no key 'zzz'; it takes format, path, schema, where, columns, options",
        ),
        (changed('format = "rate"', 'path = "x"'), "a.toml: [inputs.r] lacks the key 'format'"),
        (changed('format = "rate"', "format = 7"), "[inputs.r]: format must be a text, not 7"),
        (changed('format = "rate"', 'format = ""'), "[inputs.r]: format must be a text, not an empty one"),
        (
            changed('format = "rate"', 'format = "json"'),
            "[inputs.r] lacks the key 'schema': json files carry no",
        ),
        (
            changed('format = "rate"', 'format = "CSV"'),
            "[inputs.r] lacks the key 'schema': CSV files carry no",
        ),
        (
            changed('format = "rate"', 'format = "rate"\ncolumns = "value"'),
            '[inputs.r]: columns must be a list of texts, such as ["value"]',
        ),
        (
            changed('format = "rate"', 'format = "rate"\ncolumns = []'),
            "columns must be a list of texts, such as",
        ),
        (
            changed('format = "rate"', 'format = "rate"\noptions = "x"'),
            "[inputs.r]: options must be a table, such as { header = true }, not 'x'",
        ),
        (
            changed('format = "rate"', 'format = "rate"\noptions = { a = [1] }'),
            "[inputs.r]: options: a must be a text, number or true/false, not a list",
        ),
        (
            changed('format = "rate"', 'format = "rate"\noptions = { password = "${UNSET}" }'),
            "[inputs.r], key password, needs the environment variable UNSET, which is not set",
        ),
        (
            changed('path = "left"', 'path = "${UNSET}/x"'),
            "[inputs.l], key path, needs the environment variable UNSET",
        ),
        (changed('on = "l.k = r.value"', 'select = ["l.k"]'), "a.toml: [join] lacks the key 'on'"),
        (changed('on = "l.k', 'condition = "l.k'), "[join] has no key 'condition'; did you mean 'on'?"),
        (
            changed('value"\n[sink]', 'value"\ntasks = 0\n[sink]'),
            "[join]: tasks must be an integer of at least 1, not 0",
        ),
        (
            changed('value"\n[sink]', 'value"\ntasks = true\n[sink]'),
            "tasks must be an integer of at least 1, not True",
        ),
        (
            changed('value"\n[sink]', 'value"\nname = "tables"\n[sink]'),
            "a.toml: [join]: name='tables' is the folder of the tables",
        ),
        (
            changed('format = "noop"', 'format = "parquet"'),
            "[sink] lacks the key 'path': give the directory for the parquet",
        ),
        (
            changed('format = "noop"', 'format = "noop"\nmode = "complete"'),
            "[sink]: mode is 'complete', but results are only ever appended",
        ),
        (
            changed('checkpoint = "cp"', 'checkpointLocation = "cp"'),
            "[job] has no key 'checkpointLocation'; did you mean 'checkpoint'?",
        ),
        (changed('checkpoint = "cp"', 'name = "x"'), "a.toml: [job] lacks the key 'checkpoint'"),
        (SMALL + 'trigger = "onec"', "[job]: trigger cannot be 'onec'; did you mean 'once'?"),
        (SMALL + 'trigger = "5 fortnights"', "[job]: trigger cannot be '5 fortnights'"),
        (SMALL + "[spark]\nsql.x = 1", "[spark] has no key 'sql.x'; did you mean 'spark.sql.x'?"),
        (
            SMALL + '[spark]\nspark.x = "${UNSET}"',
            "[spark], key spark.x, needs the environment variable UNSET",
        ),
        ("spark = 3" + SMALL, "a.toml: [spark] must be a table of spark.* settings"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(text, message):
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="there is no job file"):
        load_job(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(ConfigError, match="cannot read the job file"):
        load_job(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "kafka.sasl.jaas.config",
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "sas_token",
        "fs.azure.account.key.store.dfs.core.windows.net",
        "ssl.truststore.passphrase",
        "apiKey",
        "credentials",
    ],
)
def test_secret_keys_are_known(key):
    assert looks_secret(key)
    assert shown(key, "hunter22") == "***"
    assert shown(key, "${FROM_ENV}") == "${FROM_ENV}"


@pytest.mark.parametrize("key", ["header", "path", "maxFilesPerTrigger", "subscribe", "key.deserializer"])
def test_other_keys_are_shown(key):
    assert shown(key, "x") == "x"


def test_the_user_part_of_a_url_is_hidden():
    assert shown("url", "jdbc:postgresql://ada:pw@host/db") == "jdbc:postgresql://***@host/db"


def test_secrets_are_blanked_out_of_messages():
    job = parse(FULL + '"spark.hadoop.fs.s3a.secret.key" = "0123456789"', SECRET="hunter22", BASE="/b")
    secrets = secrets_of(job, {"SECRET": "hunter22"})
    assert scrub("bad password=hunter22; key 0123456789", secrets) == "bad password=***; key ***"


def test_credentials_in_the_places_of_state_and_checkpoint_are_blanked_out_of_messages():
    text = SMALL.replace('"cp"', '"s3a://AKIA:hunter22@b/cp"') + 'state = "s3://AKIA:hunter33%2Fx@b/state"'
    secrets = secrets_of(parse(text), {})
    assert scrub("hunter22, hunter33%2Fx and hunter33/x are wrong", secrets) == "***, *** and *** are wrong"
