"""Examples of documents and the programs of examples/ run with the wheel and exactly the extra that their page names.

The ordinary tests run the same examples with everything that development installs; a package that only development
has would not be missed there.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.bare_environment import BareEnvironment, bare_environment
from tests.interop.reference import ROOT, ReferenceMissing

pytestmark = pytest.mark.interop

BASE, SPARK = "", "spark"
SOURCES = {
    "README.md": BASE,
    "README.zh-CN.md": BASE,
    "docs/api.md": BASE,
    "docs/spark.md": SPARK,
    "examples/batch.py": SPARK,
    "examples/stream.py": SPARK,
    "examples/custom_sink.py": SPARK,
    "examples/quickstart.ipynb": SPARK,
}
SECONDS_MAX = 900  # on a busy machine, kernels to compile included
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(
    scope="module", params=[pytest.param(BASE, id="base"), pytest.param(SPARK, id="spark", marks=pytest.mark.long)]
)
def environment(request: pytest.FixtureRequest) -> Iterator[tuple[str, BareEnvironment]]:
    try:
        with bare_environment(request.param) as made:
            yield request.param, made
    except ReferenceMissing as why:
        pytest.skip(str(why))


def test_examples_run_with_the_extra_of_their_page(environment: tuple[str, BareEnvironment], directory: Path) -> None:
    extra, bare = environment
    failed = {
        source: said
        for source, wanted in SOURCES.items()
        if wanted == extra and (said := _failure(bare, source, directory / Path(source).name))
    }
    assert not failed, "\n\n".join(f"{source}:\n{said}" for source, said in failed.items())


def _failure(bare: BareEnvironment, source: str, place: Path) -> str:
    """What the program printed if it failed, else nothing. It runs in an empty directory."""
    (place / "work").mkdir(parents=True)
    program = place / "program.py"
    program.write_text(_program(source), encoding="utf-8")
    ran = subprocess.run(
        [bare.python, str(program)],
        cwd=place / "work",
        env=bare.variables,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-4000:] or f"exit code {ran.returncode}"


def _program(source: str) -> str:
    """The python of a page, in order and on its lines, of a notebook, or of a program."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".md"):
        lines: list[str] = []
        for block in _BLOCK.finditer(text):
            lines += [""] * (text.count("\n", 0, block.start(1)) - len(lines)) + block[1].splitlines()
        assert any(lines), f"{source} has no example"
        return "\n".join(lines)
    if source.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        assert cells, f"{source} has no code"
        return "\n".join("".join(cell["source"]) for cell in cells)
    return text
