"""Opening and recovery of logs at a start: scans, truncates and rebuilds, in threads, and reports progress.

May know segments and directories. Begin with `recovery`; `recovery_scan` reads windows of a megabyte with the compiled
`recovery_kernel`.
"""
