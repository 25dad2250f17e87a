"""Text of a message: visible characters, markdown rows, safe rich text, highlighted code.

Owns how untrusted text becomes what is drawn. Must not know Qt, the wire or the window.
Invariant: nothing in a message can become markup, an address that is loaded, or a
character that acts instead of being seen.
"""
