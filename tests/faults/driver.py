"""A driver of its own, to be killed: `python -m tests.faults.driver FOLDER [--failpoints F --after N]`.

Processes all input of the scene in FOLDER. With `--failpoints` and `--after` that is only the beginning: N more
batches are added then and processed with the failpoints set. The ids of this process and of its JVM are in FOLDER/pids.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tests.faults.harness import CLEANING, JOINS, Scene, feed, new_session, run
from tests.faults.hub_scene import HubScene, run_hub
from watersmeet import failpoints

HUB = "hub"


def main() -> None:
    options = _parse()
    is_hub = options.join == HUB
    scene: Scene = HubScene(options.folder, tasks=options.tasks) if is_hub else _scene(options)
    process = run_hub if is_hub else run
    spark = new_session(options.master, options.folder / "scratch", configured=options.configured, **CLEANING)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    _write_pids(options.folder / "pids", jvm=jvm.java.lang.ProcessHandle.current().pid())
    if options.after:
        process(spark, scene)
        feed(scene, options.after)
    if is_hub:
        # A delivery runs in this process, which reads the variable when it starts.
        failpoints._POINTS = failpoints._parse(options.failpoints)
    process(spark, scene, options.failpoints)
    spark.stop()


def _scene(options: argparse.Namespace) -> Scene:
    return Scene(
        options.folder,
        tasks=options.tasks,
        join=JOINS[options.join],
        address=options.table,
        patience_s=options.patience,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    # Four attempts a task: a Python worker may be killed without the end of the query.
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--join", choices=(*JOINS, HUB), default="equality")
    parser.add_argument("--table", help="where the table is, if not in the folder")
    parser.add_argument("--patience", type=float, default=60)
    parser.add_argument("--failpoints", default="")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--configured", action="store_true", help="with the settings of wm.configure")
    return parser.parse_args()


def _write_pids(path: Path, jvm: int) -> None:
    draft = path.with_suffix(".draft")
    # The JVM first: this process may be the one that kills both.
    draft.write_text(f"{jvm} {os.getpid()}")
    draft.rename(path)


if __name__ == "__main__":
    main()
