"""The path of one request from its frame to its response: header, admission, handler, purgatory.

May know the connection and the table of handlers; knows no API's rules, apart from the fast path of Produce that
`dispatch` tries first. Begin with `dispatch`, then `context`.
"""
