"""Processes are killed, stores and brokers go away and come back; afterwards everything is checked from the outside.

| module | what it does |
|---|---|
| load.py | what is published, and from that what has to be there at the end |
| story.py | one chat: its turns, and what it takes back |
| wishes.py | what is asked of a user's memories |
| trouble.py | records that change nothing, or are wrong |
| mind.py | what a user's memories have to be: a model of them |
| workers.py | the worker processes: started, killed, restarted, stopped |
| model.py | the model's endpoint, which counts its calls |
| journal.py | everything that is in the topics |
| progress.py | committed offsets over time, and how long a group took to recover from a kill |
| state.py | what is in Redis, read without the product's code |
| memories.py | the same for saved memories, and their checks |
| check.py | the checks |
| run.py | the parts put together; one object with everything a check needs |

AFTERTURN_TEST_SEED repeats a run's load and kills (their timing is the machine's); AFTERTURN_TEST_CHATS,
AFTERTURN_TEST_TURNS, AFTERTURN_TEST_KILLS and AFTERTURN_TEST_SECONDS make the big one smaller.
"""
