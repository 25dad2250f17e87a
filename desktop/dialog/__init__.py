"""The role `dialog`: the only place where a secret is typed or a deletion is confirmed.

`wire`, `text`, `entry` and `pictures` know no Qt and are shared with the host; `main` and `window`
run in the dialog process only.
"""
