"""How a client is let in: Kafka's `security.protocol`, `ssl.*` and `sasl.*`, and where their secrets come from.

Begin with `client_options`, which makes `ClientSettings` of Kafka's options. `providers` reads secrets from files and
the environment, `secrets` knows which options must not be shown, `contexts` are named sets of options in files, and
`refusals` turns the error of a connection into what to change. The client of each SASL mechanism is in
`headrace.security.sasl`, and TLS contexts are made in `headrace.network`.
"""
