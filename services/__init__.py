"""What Afterturn knows how to do, one package per subject; each has its rules in `policy.py`."""
