"""What all agents share, and the only code that knows Faust: decoding, ordered acknowledgements, lanes, retries, shutdown."""
