"""An existing history as turn events: exports of other programs in, the events that a frontend would have written out.

One module per format behind the port in `port.py`; `service.run` is the verb.
"""
