"""The conversation on one connection, sans IO: shared by the broker, its connections to peers, and the client.

frames.py          cuts a byte stream into frames, within a limit; for both sides
asking.py          the client side: frames of responses, matched to the requests in flight
negotiation.py     ApiVersions: the versions that the other side serves, and the one to use
authentication.py  SaslHandshake and SaslAuthenticate: the client side
fetch_session_client.py  a session of incremental fetches: the side that fetches

Pure: knows no socket and no clock. Begin with `frames`.
"""
