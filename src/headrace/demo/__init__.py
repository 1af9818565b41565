"""The demo: loads a year of flights from a broker into a Spark table, and kills the Spark driver on the way.

`python -m headrace.demo` (or `make demo`) runs it; `--quick` takes the first 50,000 flights.

    flights.py       the data set as JSON events
    server.py        `headrace serve` in a process of its own
    loads.py         `headrace load` in processes of their own, some of them killed
    killed_load.py   the command with a driver that is killed
    results.py       what Spark finds in the table, as tables in the terminal and a chart
    __main__.py      the story

May know the client, the command line and Spark. Begin with `__main__`.
"""
