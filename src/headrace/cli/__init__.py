"""The command line: `headrace topic|produce|consume|group|cluster|config|settings|log|bench|migrate`.

main.py      entry point; passes `serve` and `load` on before anything else is imported
commands.py  the table of commands; a command's module is imported when the command runs
app.py       the typer application, which turns errors into one line and an exit code
shared.py    options that several commands share, and the client made from them
output.py    JSON, tables, and text that is safe for a terminal
places.py    parser of offsets and times
topic.py  produce.py  consume.py  group.py  settings.py  log.py ...  the commands

May know `client` and the tools that a command starts; knows no broker but for `serve`. Begin with `main`.
"""
