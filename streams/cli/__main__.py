"""`python -m streams.cli`: the command without its script."""

from streams.cli.main import main

main()
