"""`afterturn demo`: a long conversation through the whole pipeline, on the embedded stack."""
