"""What is installed names no file that is not."""

from pathlib import Path

import headrace


def test_no_message_sends_its_reader_to_a_file_that_is_not_installed() -> None:
    package = Path(headrace.__file__).parent
    assert [str(each) for each in package.rglob("*.py") if "docs/" in each.read_text()] == []
