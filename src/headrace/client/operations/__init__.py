"""Operations on a cluster, for the command line and for consoles: administration, health, moves, restarts.

May know the client only. Begin with `admin`.
"""
