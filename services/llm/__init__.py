"""Language models behind one port: a request in, a validated answer and its cost out."""
