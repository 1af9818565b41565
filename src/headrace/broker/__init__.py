"""The broker: sockets in, answers in order out, over the log, the groups and the coordination tree."""
