"""Apache Kafka for this project: its jars (pom.xml), its log settings, the topics."""
