"""The fixtures as other people's tests use them: found through the entry point, one broker a test, errors in a line."""

import pytest

pytestmark = pytest.mark.slow  # processes of its own


pytest_plugins = ["pytester"]

CLIENTS = """
    from confluent_kafka import Consumer, Producer

    def topics(broker):
        return set(Producer({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics)

    def make(broker, topic):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"tea")
        assert producer.flush(10) == 0
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Runs the files that were made, in order, without the plugins that only this project's own tests use."""
    return pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:randomly", *arguments)


def test_each_test_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(clients=CLIENTS)
    pytester.makepyfile("""
        import pytest
        from clients import make, topics

        @pytest.mark.parametrize("topic", ["one", "two", "three"])
        def test_alone(headrace_broker, topic):
            assert topics(headrace_broker) == set()
            make(headrace_broker, topic)
            assert topics(headrace_broker) == {topic}
    """)
    run(pytester).assert_outcomes(passed=3)


def test_the_session_has_one_that_all_share(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(clients=CLIENTS)
    pytester.makepyfile("""
        from clients import make, topics

        addresses = set()

        def test_one(headrace_broker_session, headrace_broker):
            addresses.add(headrace_broker_session.bootstrap)
            make(headrace_broker_session, "shared")
            assert "shared" in topics(headrace_broker_session)
            assert "shared" not in topics(headrace_broker)

        def test_other(headrace_broker_session):
            addresses.add(headrace_broker_session.bootstrap)
            assert len(addresses) <= 1 or addresses == {headrace_broker_session.bootstrap}
    """)
    run(pytester).assert_outcomes(passed=2)


def test_a_marker_and_a_conftest_say_how_the_broker_is_made(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def headrace_settings():
            return {"num.partitions": 2, "auto.create.topics.enable": True}
    """)
    pytester.makepyfile(clients=CLIENTS)
    pytester.makepyfile("""
        import pytest
        from clients import make
        from confluent_kafka import Producer

        def partitions(broker):
            make(broker, "orders")
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            return len(producer.list_topics("orders", timeout=60).topics["orders"].partitions)

        def test_of_the_conftest(headrace_broker, headrace_broker_session):
            assert partitions(headrace_broker) == partitions(headrace_broker_session) == 2

        @pytest.mark.headrace_broker(settings={"num.partitions": 5}, subprocess=True)
        def test_of_the_marker(headrace_broker):
            assert partitions(headrace_broker) == 5
            headrace_broker.kill()
    """)
    run(pytester, "--strict-markers").assert_outcomes(passed=2)


def test_a_mistake_is_one_line_that_names_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.headrace_broker(settings={"num.partition": 3})
        def test_no_such_setting(headrace_broker): ...

        @pytest.mark.headrace_broker(settings={"num.partitions": "few"})
        def test_no_such_value(headrace_broker): ...

        @pytest.mark.headrace_broker(setings={})
        def test_no_such_argument(headrace_broker): ...

        @pytest.mark.headrace_broker({"num.partitions": 3})
        def test_no_name(headrace_broker): ...
    """)
    result = run(pytester)
    result.assert_outcomes(errors=4)
    lines = [line for line in result.outlines if line.startswith(("headrace_broker: ", "@pytest.mark.headrace_broker"))]
    assert lines == [
        "headrace_broker: unknown setting 'num.partition': did you mean 'num.partitions'?",
        "headrace_broker: num.partitions='few' is not a int",
        "headrace_broker: Broker.__init__() got an unexpected keyword argument 'setings'",
        "@pytest.mark.headrace_broker takes keywords only: settings={...}, subprocess=True",
    ]
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_log_of_a_process_is_shown_with_a_test_that_failed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest, socket

        @pytest.mark.headrace_broker(settings={"max.connections.per.ip": 0}, subprocess=True)
        def test_it(headrace_broker):
            with socket.create_connection(("127.0.0.1", headrace_broker.port)) as connection:
                assert connection.recv(1) == b""
            assert False, "so that the log is shown"
    """)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured stdout teardown*", "*WARNING*max.connections*"])


def test_workers_beside_each_other_do_not_meet(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(clients=CLIENTS)
    pytester.makepyfile("""
        import pytest
        from clients import make, topics

        @pytest.mark.parametrize("number", range(6))
        def test_alone(headrace_broker, headrace_broker_session, number):
            assert topics(headrace_broker) == set()
            make(headrace_broker, "orders")
            make(headrace_broker_session, f"orders-{number}")
            assert topics(headrace_broker) == {"orders"}
    """)
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=6)
