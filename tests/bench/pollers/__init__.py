"""The polls of other libraries, which `python -m tests.bench polls` compares with. `python -m MODULE N` enqueues so many."""
