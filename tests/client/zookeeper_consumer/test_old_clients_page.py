"""The examples in docs/old-clients.md run as they are printed."""

import sys
from pathlib import Path

import pytest

from tests.client.zookeeper_consumer.conftest import Site
from tests.docs.test_examples import ADDRESS, check_output, examples, run

ZOOKEEPER = "127.0.0.1:2181"


@pytest.mark.slow
@pytest.mark.xdist_group("zookeeper-consumer")
def test_the_examples_of_the_page_run(site: Site, tmp_path: Path) -> None:
    shown = examples("docs/old-clients.md")
    assert len(shown) == 5
    for example in shown:
        code = example.code.replace(ADDRESS, site.bootstrap).replace(ZOOKEEPER, site.zookeeper)
        output = run([sys.executable, "-c", code], tmp_path, site.bootstrap)
        if example.prints is not None:
            check_output(example, output, site.bootstrap)
