"""The pipeline: one module per agent, the runtime they share, and the command that starts them."""
