"""What Afterturn runs on: brokers, Redis, ClickHouse, topics, migrations, containers."""
