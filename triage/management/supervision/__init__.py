"""One machine's house: a private Redis, worker, beat and web as children of one supervisor.

`house.py` says which programs there are and runs them with the supervisor library; `lifeline.py`
ties each of them to the supervisor's life; `ports.py` and `private_redis.py` find what is free and
what is there.
"""
