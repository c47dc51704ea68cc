"""What every service that writes a chat's state shares: key names, deterministic ids, scripts, the outbox."""
