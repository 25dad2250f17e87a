"""Qt list models over the view state.

Owns how rows become roles. Must not decide anything: what is shown is in `ui.store` and
`ui.transcript`. Invariant: a model never holds a second copy of the state.
"""
