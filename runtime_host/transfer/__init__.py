"""Files that are moved between one folder of the host and a harness at a service.

Owns the folder and its names (`root`), what a file says it is (`media`), what the host allows (`grant`) and the one
way in and out (`copy`). Must not know sessions, drivers or services.
"""
