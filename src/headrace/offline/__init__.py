"""Tools on data directories without a broker: dump, verify, repair, usage; of headrace, Apache Kafka and Kafka 0.7.

May know `log` and `records`. Only `repair`, and the writer in `segments_07`, write files. Begin with
`stored_partitions`.
"""
