"""The command line: `headrace topic|produce|consume|group|config|log|serve|load`.

main.py      which command; `serve` and `load` go their own way before anything else is imported
app.py       the typer application, and how errors become one line and an exit code
shared.py    options that every command takes, and the client that they make
output.py    JSON, tables, and text that cannot harm a terminal
places.py    offsets and times as people write them
topic.py  produce.py  consume.py  group.py  settings.py  log.py      the commands
"""
