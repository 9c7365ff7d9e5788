"""Imports point downwards only, and the pure layers stay pure.

The table is the architecture: to add an edge is to change it, and belongs into a review.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import watersmeet

PACKAGE = Path(watersmeet.__file__).parent
ROOT = Path(__file__).parents[2]

# For each layer (a package or a module below watersmeet/), what it may import besides itself. Lower ones first.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "failpoints": set(),
    # What must not be shown of a URI: for the places of state and of tables alike.
    "credentials": set(),
    "model": {"errors"},
    "predicate": {"errors", "model"},
    "schemes": {"errors", "model"},
    "plan": {"errors", "model", "schemes"},
    "kernel": {"errors", "model"},
    # Many queries as data. Its drivers are in `engine` and `local`. Named so, because `watersmeet.hub` is the function.
    "hubs": {"errors", "model", "predicate", "kernel"},
    # A run file holds a `Sorted` with its keys: the log writes and maps it. It asks the register
    # which classes plans and statistics are read as, and how a plan is shown.
    "log": {
        *("errors", "failpoints", "credentials", "model", "kernel.keys", "kernel.rows"),
        *("schemes.register", "schemes.scheme"),
    },
    # Where tables come from. Named so, because `watersmeet.table` is the function.
    "tables": {"errors", "failpoints", "credentials", "model", "predicate", "plan", "kernel", "log"},
    # Named so, because `watersmeet.files` is the function.
    "file_inputs": {"errors", "failpoints", "credentials", "model", "predicate", "kernel", "log", "tables"},
    "engine": {
        "errors",
        "failpoints",
        "model",
        "predicate",
        "schemes",
        "plan",
        "kernel",
        "hubs",
        "log",
        "tables",
        "file_inputs",
    },
    "config": {"errors", "model", "schemes", "plan", "log", "engine"},
    "local": {"errors", "model", "predicate", "schemes", "plan", "kernel", "hubs", "log", "tables", "engine"},
    "spark": {
        "errors",
        "failpoints",
        "credentials",
        "model",
        "predicate",
        "schemes",
        "plan",
        "kernel",
        "hubs",
        "log",
        "tables",
        "file_inputs",
        "engine",
        "config",
    },
    # Imports `spark` inside a function only: `import watersmeet` needs no Spark (see the test below).
    "api": {"errors", "model", "predicate", "kernel", "log", "tables", "file_inputs", "engine", "spark"},
    # A DataFrame in, a DataFrame out, through its own methods: it imports Spark's types for the type checker only.
    "similar": {"errors", "kernel"},
    # For the users' tests: speaks of Spark and of results, not of us.
    "testing": set(),
    # `import watersmeet` itself: the public names.
    "__init__": {"errors", "api", "tables", "file_inputs"},
    "jobs": {
        "errors",
        "credentials",
        "model",
        "plan",
        "log",
        "tables",
        "file_inputs",
        "engine",
        "config",
        "spark",
        "__init__",
    },
    "cli": {
        "errors",
        "credentials",
        "model",
        "schemes",
        *("engine.options", "engine.hub_commands", "engine.hub_status"),
        "log",
        "tables",
        "jobs",
        "__init__",
    },
    "__main__": {"cli"},
}

# The simulated clusters of the papers are pure too: a run follows from its seed.
SIMULATIONS = ("papers.adaptive.sim", "papers.state.relocation")
PURE = ("model", "predicate", "schemes", "plan", "kernel", "hubs", *SIMULATIONS)

# What each room of papers/ may import of the others: no paper needs another.
ROOMS: dict[str, set[str]] = {
    "shared": set(),
    **{paper: {"shared"} for paper in ("adaptive", "hypercube", "hybrid", "state", "rjoin")},
}

# What a pure layer may import from outside, each for a reason: everything else is a file, a clock, a generator,
# a process, a thread or an engine until shown otherwise.
OUTSIDE = {
    # language and data structures
    *(
        "__future__",
        "abc",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "typing",
    ),
    # values and computing; `datetime` for its types: what reads the clock in it is refused below
    *("bisect", "datetime", "decimal", "fractions", "heapq", "math", "operator", "re", "string", "struct"),
    # hints in messages
    "difflib",
    # arrays, expressions, stable hashes, texts of facts
    *("numpy", "pyarrow", "sqlglot", "hashlib", "xxhash", "json"),
}

# Calls that read a clock or a file, or draw from a global generator, through a module that is allowed.
IMPURE_CALLS = {
    *("datetime.now", "datetime.today", "datetime.utcnow", "date.today", "datetime64.now"),
    *("np.random", "numpy.random", "np.load", "np.save", "np.fromfile", "np.memmap"),
    *("pa.memory_map", "pa.OSFile", "pa.input_stream", "pa.output_stream"),
}
IMPURE_BUILTINS = {"open", "print", "input", "hash", "exec", "eval"}


def sources(layer: str) -> list[Path]:
    """The files of a layer, or of a dotted name from the root of the repository."""
    if "." in layer:
        return sorted(ROOT.joinpath(*layer.split(".")).rglob("*.py"))
    module = PACKAGE / f"{layer}.py"
    return [module] if module.exists() else sorted((PACKAGE / layer).rglob("*.py"))


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, at any depth of the file.

    `from watersmeet import failpoints` is an import of watersmeet.failpoints; `import watersmeet` and
    `from watersmeet import __version__` are imports of the package's own module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, "watersmeet.__init__" if alias.name == "watersmeet" else alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"line {node.lineno}: relative import"
            if node.module != "watersmeet":
                yield node.lineno, node.module
                continue
            for alias in node.names:
                inside = (PACKAGE / alias.name).is_dir() or (PACKAGE / f"{alias.name}.py").exists()
                yield node.lineno, f"watersmeet.{alias.name if inside else '__init__'}"


def is_allowed(module: str, layer: str) -> bool:
    inner = module.removeprefix("watersmeet.")
    allowed = ALLOWED[layer] | {layer}
    return any(inner == name or inner.startswith(f"{name}.") for name in allowed)


def test_every_layer_is_in_the_table():
    found = {path.stem for path in PACKAGE.glob("*.py")}
    found |= {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert found == set(ALLOWED)


def test_the_table_has_no_circle():
    below: dict[str, set[str]] = {}
    for layer, allowed in ALLOWED.items():
        names = {name.partition(".")[0] for name in allowed}
        assert names <= set(below), f"{layer} may import {names - set(below)}, which stands above it"
        below[layer] = names


@pytest.mark.parametrize("layer", ALLOWED)
def test_imports_point_downwards(layer):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(layer)
        for line, module in imported(ast.parse(path.read_text()))
        if module.split(".")[0] == "watersmeet" and not is_allowed(module, layer)
    ]
    assert not wrong, "\n".join(wrong)


# What a scheme may know of another. Everything else that two schemes need is in schemes/scheme.py or balance.py.
OF_OTHER_SCHEMES: dict[str, set[str]] = {
    # Runs list their hot keys also under these, so that a query can be started again as a hypercube.
    "hash": {"hypercube.hot_keys"},
    "budget": {"hypercube.hot_keys"},
    "biclique": {"hypercube.hot_keys"},
}
SHARED_BY_SCHEMES = {"scheme", "balance"}


# A prepared table opens its reader, and a reader prepares the next version of its table: the one circle, inside functions.
UPWARDS = {
    ("watersmeet.tables.source", f"watersmeet.tables.{name}")
    for name in ("database", "parquet", "sorted_copy", "prepare")
}


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name if name == "watersmeet.__init__" else name.removesuffix(".__init__")


def imports_of_modules() -> dict[str, set[str]]:
    """For each module of the package the modules that it imports, also inside functions; not for the type checker only."""
    graph: dict[str, set[str]] = {module_of(path): set() for path in PACKAGE.rglob("*.py")}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                node.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    # `from watersmeet.kernel import emit` imports a module, `from watersmeet.kernel.emit import cross` too.
                    inner = f"{node.module}.{alias.name}"
                    graph[module_of(path)] |= {inner if inner in graph else node.module} & graph.keys()
    return graph


def test_modules_import_each_other_in_no_circle():
    graph = {
        module: {other for other in needed if (module, other) not in UPWARDS}
        for module, needed in imports_of_modules().items()
    }
    while graph:
        free = {module for module, needed in graph.items() if not needed & graph.keys() - {module}}
        assert free, f"these import each other: {sorted(graph)}"
        graph = {module: needed for module, needed in graph.items() if module not in free}


def test_no_two_classes_have_the_same_name():
    """A name means one thing in the whole package."""
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def aliases() -> Iterator[tuple[Path, ast.Assign | ast.AnnAssign, str]]:
    """What modules name like a class without defining one: types by another name, type variables, enums."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            names = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for name in names:
                if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name.id):
                    assert isinstance(node, ast.Assign | ast.AnnAssign)
                    yield path, node, name.id


def test_no_other_name_of_a_type_is_that_of_a_class():
    classes = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}" for path, node, name in aliases() if name in classes
    ]
    assert not found, "\n".join(found)


def test_other_names_of_types_mean_one_type():
    meanings: dict[str, set[str]] = {}
    for _, node, name in aliases():
        meanings.setdefault(name, set()).add(ast.unparse(node.value) if node.value else "")
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_a_scheme_knows_no_other_one():
    rooms = {path.stem for path in (PACKAGE / "schemes").iterdir()} - SHARED_BY_SCHEMES
    rooms -= {"__init__", "__pycache__", "register"}
    wrong = []
    for module, needed in imports_of_modules().items():
        _, _, inner = module.partition("watersmeet.schemes.")
        room = inner.partition(".")[0]
        if room not in rooms:
            continue
        for other in (name.removeprefix("watersmeet.schemes.") for name in needed if ".schemes." in name):
            known = other.partition(".")[0] in {room, *SHARED_BY_SCHEMES}
            if not known and other not in OF_OTHER_SCHEMES.get(room, set()):
                wrong.append(f"{module} imports schemes.{other}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", ALLOWED)
def test_the_package_knows_neither_papers_nor_benchmarks(layer):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(layer)
        for line, module in imported(ast.parse(path.read_text()))
        if module.split(".")[0] in ("papers", "bench", "tests")
    ]
    assert not wrong, "\n".join(wrong)


def test_every_paper_is_in_the_table():
    assert {path.name for path in (ROOT / "papers").iterdir() if any(path.glob("*.py"))} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_paper_imports_what_all_share_and_no_other_paper(room):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(f"papers.{room}")
        for line, module in imported(ast.parse(path.read_text()))
        if module.split(".")[0] in ("papers", "bench", "tests")
        and not any(module.startswith(f"papers.{other}") for other in ROOMS[room] | {room})
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", PURE)
def test_pure_layers_import_no_engine_file_clock_or_chance(layer):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(layer)
        for line, module in imported(ast.parse(path.read_text()))
        if module in IMPURE_CALLS
        or not (module.split(".")[0] in {"watersmeet", *OUTSIDE} or f"{module}.".startswith(f"{layer}."))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", PURE)
def test_pure_layers_call_nothing_impure(layer):
    wrong = []
    for path in sources(layer):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and ".".join(ast.unparse(node).split(".")[-2:]) in IMPURE_CALLS
            ):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} uses {ast.unparse(node)}")
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in IMPURE_BUILTINS
            ):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}()")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "layer",
    [layer for layer in ALLOWED if layer not in ("spark", "jobs", "testing", "api", "similar")],
)
def test_only_the_drivers_know_spark(layer):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(layer)
        for line, module in imported(ast.parse(path.read_text()))
        if module.split(".")[0] in ("pyspark", "py4j")
    ]
    assert not wrong, "\n".join(wrong)


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running the statement."""
    shown = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{shown}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def all_modules(layer: str) -> list[str]:
    root = ROOT if "." in layer else PACKAGE.parent
    dotted = [path.relative_to(root).with_suffix("").parts for path in sources(layer)]
    return [".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in dotted]


@pytest.mark.parametrize("layer", [*PURE, "log", "tables", "file_inputs", "engine", "local", "config"])
def test_importing_a_lower_layer_loads_no_spark(layer):
    loaded = modules_after("\n".join(f"import {module}" for module in all_modules(layer)))
    assert "watersmeet" in loaded
    assert not loaded & {"pyspark", "py4j"}


def test_importing_the_package_loads_nothing_heavy():
    assert not modules_after("import watersmeet") & {
        "pyspark",
        "py4j",
        "pyarrow",
        "numpy",
        "sqlglot",
        "duckdb",
    }


def test_a_worker_loads_no_parser_and_no_pandas():
    """Each takes as long as all that a task needs, in every worker, before it asks for its first batch.

    Later pandas cannot be kept out where it is installed: the first array that Arrow makes of Python values loads it.
    """
    loaded = modules_after("import watersmeet.spark.tasks, watersmeet.spark.file_task")
    assert "pyarrow" in loaded
    assert not loaded & {"sqlglot", "pandas"}


HELP = """
from typer.testing import CliRunner
from {module} import app
done = CliRunner().invoke(app, {arguments})
assert done.exit_code == 0 and "Usage" in done.output, done.output
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["demo", "--help"],
        ["run", "--help"],
        ["hub", "--help"],
        ["hub", "add", "--help"],
        ["hub", "run", "--help"],
        ["status", "--help"],
    ],
)
def test_help_loads_nothing_heavy(arguments):
    check_help("watersmeet.cli.main", arguments)


@pytest.mark.parametrize("paper", sorted(set(ROOMS) - {"shared"}))
def test_help_of_a_paper_loads_nothing_heavy(paper):
    check_help("papers.__main__", [paper, "--help"])


def check_help(module: str, arguments: list[str]) -> None:
    loaded = modules_after(HELP.format(module=module, arguments=arguments))
    assert "typer" in loaded
    assert not loaded & {"pyspark", "py4j", "pyarrow", "duckdb"}


def test_the_drivers_process_of_a_file_input_loads_no_scheme():
    """There is one for each input, started one after the other: to load the planner took as long as all else."""
    source = (
        "import watersmeet.spark.file_source, watersmeet.file_inputs.stream, watersmeet.file_inputs.offsets"
    )
    loaded = modules_after(f"{source}\nimport sys\nassert 'watersmeet.schemes' not in sys.modules")
    assert not loaded & {"sqlglot", "pandas", "duckdb"}
