"""The contract between host and renderer: DTOs and framing, sans-I/O.

Owns what may cross the channel and how it is put into bytes. Must not know Qt,
the runtime, the host or any file or socket. Invariant: a value that leaves
`framing` has been checked against the types and bounds of `dto`.
"""
