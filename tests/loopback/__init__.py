"""Real servers on loopback, scripted: what the tests put in place of providers."""
