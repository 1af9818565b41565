"""Quotas: rates that users, clients and addresses must not exceed, and how long one that exceeds its rate has to wait.

Pure: the time is an argument. Begin with `token_bucket`, the one engine; `entities` says who has a quota,
`client_quotas` which one applies to a request, `connection_quotas` which to a new connection.
"""
