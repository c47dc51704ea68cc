"""The audit: does what Redis and ClickHouse hold fit together? It reads, and changes nothing."""
