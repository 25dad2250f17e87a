"""What the person is asked in the trusted dialog for each proposal of the window, and what follows from it."""
