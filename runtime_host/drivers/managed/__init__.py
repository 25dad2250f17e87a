"""What the drivers of managed harnesses share: harnesses whose loop, history and files are a provider's.

Must not know any vendor's words.
"""
