"""Commands as people type them, in processes of their own, against a real broker."""

import json
import select
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from headrace import __version__
from headrace.cli.commands import COMMANDS
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS
from tests.cli.conftest import Run, run_headrace
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer

pytestmark = pytest.mark.slow  # processes of its own


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def data(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(done)]


@pytest.fixture
def topic(headrace: Run) -> str:
    name = topic_name("cli")
    assert data(headrace("topic", "create", name, "-p", "3", "--json"))[0]["partitions"] == 3
    return name


def test_lines_come_back_as_they_went(headrace: Run, topic: str) -> None:
    sent = data(headrace("produce", topic, "--json", stdin=b"one\ntwo\r\n\xff\n"))[0]
    assert sent["records"] == 3
    done = headrace("consume", topic, "--exit")
    assert done.stdout == b"one\ntwo\n\xff\n"


def test_keys_headers_and_formats(headrace: Run, topic: str) -> None:
    lines(headrace("produce", topic, "-K", ":", "-H", "h=1", "-Z", "-p", "1", stdin=b"k:v:w\nk:\n"))
    shown = lines(headrace("consume", topic, "-e", "--format", r"%p %o %k=%s %S %h\n"))
    assert shown == ["1 0 k=v:w 3 h=1", "1 1 k= -1 h=1"]


def test_json_lines_go_both_ways(headrace: Run, topic: str) -> None:
    record = {"key": "k", "value": {"a": [1]}, "headers": {"h": "é"}, "partition": 2, "timestamp_ms": 1234}
    lines(headrace("produce", topic, "--json-lines", stdin=json.dumps(record).encode() + b'\n{"value": null}\n'))
    lines(headrace("produce", topic, "-p", "0", stdin=b"\xff\n"))
    found = sorted(data(headrace("consume", topic, "-e", "--json")), key=lambda one: str(one["key"]))
    assert [one["value"] for one in found if one["key"] is None and one["value"]] == [{"base64": "/w=="}]
    assert found[-1] == {
        "topic": topic,
        "partition": 2,
        "offset": found[-1]["offset"],
        "timestamp_ms": 1234,
        "key": "k",
        "value": '{"a":[1]}',
        "headers": [["h", "é"]],
    }


def test_whole_files_are_records(headrace: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"line\nline\n")
    lines(headrace("produce", topic, str(tmp_path / "a"), "--whole"))
    assert headrace("consume", topic, "-e", "--format", "%S").stdout == b"10"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "-2", "-e"], ["8", "9"]),
        (["--from", "8", "-e"], ["8", "9"]),
        (["--from", "3", "--to", "5"], ["3", "4"]),
        (["--from", "@3000", "--to", "@1970-01-01T00:00:06Z"], ["3", "4", "5"]),
        (["-n", "3"], ["0", "1", "2"]),
        (["-n", "0"], []),
        (["--from", "1000", "-e"], []),
        (["--from", "end", "-e"], []),
    ],
)
def test_consume_starts_and_stops_where_it_is_told(
    headrace: Run, topic: str, options: list[str], expected: list[str]
) -> None:
    records = [json.dumps({"value": str(n), "partition": 0, "timestamp_ms": n * 1000}) for n in range(10)]
    lines(headrace("produce", topic, "--json-lines", stdin="\n".join(records).encode()))
    assert lines(headrace("consume", topic, "-p", "0", *options)) == expected


def test_a_group_goes_on_where_it_was(headrace: Run, topic: str) -> None:
    group = topic_name("cli-group")
    lines(headrace("produce", topic, "-p", "0", stdin=b"a\nb\nc\nd\n"))
    assert lines(headrace("consume", topic, "-g", group, "-n", "3")) == ["a", "b", "c"]
    assert lines(headrace("consume", topic, "-g", group, "-n", "1")) == ["d"]


def test_a_topic_is_described_and_deleted_and_a_dry_run_only_says_so(headrace: Run, topic: str) -> None:
    lines(headrace("produce", topic, "-p", "1", stdin=b"a\nb\n"))
    [described] = json.loads(headrace("topic", "describe", topic, "--json").stdout)
    assert [(part["start_offset"], part["end_offset"]) for part in described["partitions"]] == [(0, 0), (0, 2), (0, 0)]
    assert lines(headrace("topic", "delete", topic, "--dry-run")) == [
        f"would delete topic {topic} with about 2 records"
    ]
    assert topic in headrace("topic", "list").stdout.decode()
    assert lines(headrace("topic", "delete", topic)) == [f"deleted topic {topic} with about 2 records"]
    assert topic not in headrace("topic", "list").stdout.decode()


def test_create_may_be_repeated_where_that_is_wanted(headrace: Run, topic: str) -> None:
    again = headrace("topic", "create", topic)
    assert (again.returncode, again.stdout) == (1, b"")
    assert again.stderr.decode().startswith(f"headrace: TOPIC_ALREADY_EXISTS: topic {topic}")
    assert lines(headrace("topic", "create", topic, "--if-not-exists")) == [f"exists: topic {topic} with 3 partitions"]


def test_settings_are_shown(headrace: Run) -> None:
    name = topic_name("configured")
    lines(headrace("topic", "create", name, "-c", "retention.ms=-1"))
    assert json.loads(headrace("config", "get", "topic", name, "--json").stdout)["retention.ms"] == "-1"
    unknown = headrace("config", "get", "topic", name, "no.such")
    assert (unknown.returncode, unknown.stderr.decode()) == (2, f"headrace: topic {name} has no setting 'no.such'\n")


def test_a_log_directory_is_dumped_without_a_broker(headrace: Run, topic: str, cli_server: HeadraceServer) -> None:
    lines(headrace("produce", topic, "-p", "0", stdin=b"a\n"))
    rows = data(run_headrace("log", "dump", str(cli_server.data / f"{topic}-0"), "--json", "--deep"))
    assert any(row["kind"] == "record" and row["value"] == "a" for row in rows)
    nothing = run_headrace("log", "dump", str(cli_server.data / "no-such-file.log"))
    assert nothing.returncode == 1 and nothing.stderr.startswith(b"headrace: ")
    other = run_headrace("log", "dump", str(cli_server.data / ".lock"))
    assert (
        other.returncode == 2
        and other.stderr.startswith(b"headrace: ")
        and b"is not a file of a data directory" in other.stderr
    )


@pytest.mark.parametrize("damage", ["flipped", "torn"])
def test_damage_is_shown_and_ends_with_exit_code_1(
    headrace: Run, topic: str, cli_server: HeadraceServer, tmp_path: Path, damage: str
) -> None:
    lines(headrace("produce", topic, "-p", "0", stdin=b"a\n"))
    written = (cli_server.data / f"{topic}-0" / f"{0:020}.log").read_bytes()
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(written)
    assert run_headrace("log", "dump", str(segment)).returncode == 0
    segment.write_bytes(written[:-1] + (bytes([written[-1] ^ 1]) if damage == "flipped" else b""))
    dumped = run_headrace("log", "dump", str(segment))
    assert dumped.returncode == 1
    assert (b"is_valid=False" if damage == "flipped" else b"is cut off") in dumped.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["topic", "list"],
            1,
            "cannot connect to 127.0.0.1:1: Connection refused; is a broker running there? `headrace serve`",
        ),
        (["topic", "list", "-b", "nonsense"], 2, "--bootstrap: broker address 'nonsense' is not HOST:PORT"),
        (["topic", "create", "t", "-c", "x"], 2, "--config 'x' is not KEY=VALUE"),
        (["topic", "frobnicate"], 2, "frobnicate"),
        (["produce"], 2, "TOPIC"),
        (["produce", "t", "-z", "rar"], 2, "compression='rar'"),
        (["produce", "t", "--json-lines", "--whole"], 2, "--json-lines cannot be combined"),
        (["consume", "t", "--from", "noon"], 2, "--from 'noon'"),
        (["consume", "t", "--to", "@noon"], 2, "--to '@noon'"),
        (["consume", "t", "--format", "%x"], 2, "--format: %x"),
        (["consume", "t", "-g", "g", "-e"], 2, "--group"),
        (["config", "get", "user", "x"], 2, "'user'"),
        (["topic", "alter", "t"], 2, "nothing to alter"),
    ],
)
def test_errors_are_one_line_that_names_the_value(arguments: list[str], code: int, said: str) -> None:
    done = run_headrace(*arguments)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.startswith(b"headrace: ") and done.stderr.count(b"\n") == 1
    assert said in done.stderr.decode()


def test_a_topic_that_is_not_there_is_named(headrace: Run) -> None:
    for command in (["consume", "nowhere", "-e"], ["topic", "describe", "nowhere"], ["topic", "delete", "nowhere"]):
        done = headrace(*command)
        assert done.returncode == 1 and b"nowhere" in done.stderr and done.stderr.count(b"\n") == 1


def test_a_reader_that_stops_reading_is_no_error_message(headrace: Run, topic: str, cli_server: HeadraceServer) -> None:
    lines(headrace("produce", topic, stdin=b"x\n" * 50_000))
    script = f'"$0" -m headrace consume {topic} -e -b {cli_server.bootstrap} | head -1'
    piped = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, timeout=300, check=False)
    assert (piped.stdout, piped.stderr) == (b"x\n", b"")


def test_records_reach_a_pipe_while_the_command_waits_for_more(
    headrace: Run, topic: str, cli_server: HeadraceServer
) -> None:
    command = [sys.executable, "-m", "headrace", "consume", topic, "-b", cli_server.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        try:
            for line in (b"one\n", b"two\n"):
                lines(headrace("produce", topic, stdin=line))
                assert select.select([following.stdout], [], [], WITHIN_SECONDS)[0]
                assert following.stdout.readline() == line
        finally:
            following.terminate()


def test_a_member_that_is_terminated_leaves_its_group_and_its_place(
    headrace: Run, topic: str, cli_server: HeadraceServer
) -> None:
    lines(headrace("produce", topic, "-p", "0", stdin=b"one\ntwo\n"))
    group = topic_name("terminated")
    command = [sys.executable, "-m", "headrace", "consume", topic, "-g", group, "-b", cli_server.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert [member.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        member.terminate()
        assert member.wait(WITHIN_SECONDS) == 128 + signal.SIGTERM
    (found,) = data(headrace("group", "describe", group, "--json"))[:1]
    described = json.dumps(found)
    assert '"lag": 0' in described and "headrace-cli" not in described


def test_the_lines_before_a_wrong_one_are_sent(headrace: Run, topic: str) -> None:
    refused = headrace("produce", topic, "--json-lines", stdin=b'{"value": "one"}\nnonsense\n{"value": "three"}\n')
    assert refused.returncode == 2 and b"line 2 is not JSON" in refused.stderr
    assert lines(headrace("consume", topic, "-e")) == ["one"]


def test_help_lists_every_command() -> None:
    shown = run_headrace("--help").stdout.decode()
    for name, command in COMMANDS.items():
        assert f"  {name} " in shown
        assert command.help in shown


def test_every_command_is_where_the_list_says() -> None:
    for name, command in COMMANDS.items():
        assert callable(getattr(import_module(command.module), command.attribute)), name


def test_the_version_is_printed() -> None:
    for option in ("--version", "-V"):
        assert run_headrace(option).stdout.decode() == f"headrace {__version__}\n"


def test_a_command_that_is_not_there_is_refused_with_the_nearest() -> None:
    done = run_headrace("tpoic", "list")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == ("headrace: unknown command 'tpoic'; did you mean 'topic'? (see headrace --help)\n")


@pytest.mark.parametrize("group", ["topic", "cluster", "lake"])
def test_a_group_of_commands_without_one_says_what_there_is(group: str) -> None:
    done = run_headrace(group)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.splitlines() == run_headrace(group, "--help").stdout.splitlines()


def test_without_a_command_it_says_what_there_is() -> None:
    done = run_headrace()
    assert done.returncode == 2
    assert done.stdout == run_headrace("--help").stdout


def test_settings_are_listed_by_a_part_of_their_name() -> None:
    shown = run_headrace("settings", "retention.ms").stdout.decode()
    assert [line.split()[0] for line in shown.splitlines()] == ["NAME", "delete.retention.ms", "retention.ms"]
    assert "604800000 ms" in shown
    assert TOPIC_SETTINGS["retention.ms"][1].doc in shown


def test_settings_are_found_by_a_pattern_and_by_the_name_of_a_default() -> None:
    found = json.loads(run_headrace("settings", "log.retention.*", "--json").stdout)
    assert [each["name"] for each in found] == ["log.retention.check.interval.ms", "retention.bytes", "retention.ms"]


def test_all_settings_are_listed() -> None:
    found = json.loads(run_headrace("settings", "--json").stdout)
    assert {each["name"] for each in found} == {*BROKER_SETTINGS, *TOPIC_SETTINGS}
    (dirs,) = (each for each in found if each["name"] == "log.dirs")
    assert (dirs["of"], dirs["type"], dirs["default"]) == ("broker", "list", "headrace-data")


def test_a_pattern_of_settings_that_have_no_meaning_here_says_so() -> None:
    done = run_headrace("settings", "num.network.threads")
    assert done.returncode == 2
    assert b"matches only settings of Apache Kafka that are ignored or refused here: num.network.threads" in done.stderr


def test_a_pattern_that_no_setting_has_is_refused() -> None:
    done = run_headrace("settings", "no.such")
    assert (done.returncode, done.stderr) == (
        2,
        b"headrace: no setting matches 'no.such'; `headrace settings` without a pattern lists all\n",
    )
