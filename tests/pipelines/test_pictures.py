"""The pictures of docs/pipelines.md are those of the pipelines that were killed here, byte for byte.

HEADRACE_PICTURES=1 writes them anew.
"""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.pipelines.pictures import PICTURES
from tests.pipelines.conftest import Survived

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PICTURES)
def test_the_docs_show_the_result_after_kills(survived: Survived, name: str) -> None:
    drawn = PICTURES[name](survived.place)
    ElementTree.fromstring(drawn)
    kept = DOCS / "pictures" / f"{name}.svg"
    if os.environ.get("HEADRACE_PICTURES"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(drawn)
    assert kept.read_text() == drawn
    assert f"(pictures/{name}.svg)" in (DOCS / "pipelines.md").read_text()
