"""The demo: a year of flights from a broker's socket to a Spark table, with a driver killed on the way.

`python -m headrace.demo` (or `make demo`) runs it; `--quick` takes the first 50,000 flights.

    flights.py   the data set as JSON events
    server.py    `headrace serve` in a process of its own
    loads.py     `headrace load` in processes of their own, some of them killed
    results.py   what Spark finds in the table, as tables in the terminal and a chart
    __main__.py  the story
"""
