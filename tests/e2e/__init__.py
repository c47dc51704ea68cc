"""The product as its users meet it: commands as processes, a gateway over HTTP, records through Kafka."""
