"""The demo: a long conversation, played through Kafka as a frontend would."""
