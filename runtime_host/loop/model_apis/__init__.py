"""How models are spoken to, one module for each kind of API; their SDKs are imported on first use only."""
