"""Tests of the driver for Claude Managed Agents that need no far side."""
