"""The commands of docs/migrate.md, in their order, on the directory of a stopped Kafka."""

from pathlib import Path

import pytest

from tests.docs.test_examples import ADDRESS, check_output, examples, run, serving
from tests.migrate.stopped import kafkas

PAGE = "docs/migrate.md"


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    kafkas(tmp_path / "kafka")
    ran = 0
    for each in examples(PAGE):
        example = each._replace(code=each.code.replace("/var/lib/", f"{tmp_path}/"))
        if example.note == "started by the test":
            with serving(example, tmp_path) as bootstrap:
                run(["bash", "-c", f"headrace topic describe flights --bootstrap {bootstrap}"], tmp_path, bootstrap)
        else:
            output = run(["bash", "-euo", "pipefail", "-c", example.code], tmp_path, ADDRESS)
            if example.prints is not None:
                check_output(example, output, ADDRESS)
        ran += 1
    assert ran == 5
    assert (tmp_path / "kafka-3.9" / "flights-0").is_dir()
